package locksmith

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// wire is the control connection: a [net.Conn] for jlaffaye/ftp, which logs in, transfers and lists on it, and ask
// for everything that the library cannot say (MKD with the text of its reply, SITE, ALLO) or cannot wait for.
//
// The two share it without losing a byte, since Read gives the library one line at a time: when one of its calls is
// over its own buffer is empty, and whatever else has come is in ours. The library has no deadlines on commands; here each
// line that it reads and writes has one.
//
// Only cut and hurry may be called by other goroutines than the one that speaks.
type wire struct {
	timeout time.Duration // of each reply
	instead interceptor   // asked for each command of the library; nil: none
	buf     []byte        // has come and is not read yet
	partial []string      // lines of a reply whose end has not come
	sent    bool          // the last send got so far that the server may have heard of it
	verb    string        // of the last command of the library
	last    reply         // the last line that the library read
	owed    bool          // the reply that the last ask gave up can still come

	mu     sync.Mutex
	conn   net.Conn
	over   error         // not nil: nothing is read or written any more
	atMost time.Duration // of each reply, if not 0
}

// interceptor answers a command of the library by itself, if it says true: with the reply that the library is to read.
type interceptor func(command string) (reply string, instead bool)

var _ net.Conn = (*wire)(nil)

// longestReply bounds the memory and the time that one reply takes.
const longestReply = 1 << 22

// errInterrupted is returned when the context ended before a reply came: it can still be awaited.
var errInterrupted = errors.New("interrupted")

// gone is a connection that has ended. It matches ErrUnreachable.
type gone struct {
	what string
	err  error
}

func (g *gone) Error() string        { return g.what + ": " + plain(g.err) }
func (g *gone) Unwrap() error        { return g.err }
func (g *gone) Is(target error) bool { return target == ErrUnreachable }

// plain is the text of an error of package net without addresses, on one line.
func plain(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, io.EOF):
		return "the server hung up"
	case errors.As(err, &op) && op.Op != "dial":
		return op.Err.Error()
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

// arm begins a deadline for what is read and written next.
func (w *wire) arm(d time.Duration) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over != nil {
		return nil, w.over
	}
	if w.atMost > 0 {
		d = min(d, w.atMost)
	}
	_ = w.conn.SetDeadline(time.Now().Add(d)) // fails on a closed connection only, and then so does what comes next
	return w.conn, nil
}

// hurry shortens the deadline that is running, and those that follow; 0 takes that back.
func (w *wire) hurry(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.atMost = d; d > 0 && w.over == nil {
		_ = w.conn.SetDeadline(time.Now().Add(d))
	}
}

// cut ends the connection for a reason; the first one counts.
func (w *wire) cut(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over == nil {
		w.over = why
		_ = w.conn.SetDeadline(time.Unix(1, 0))
	}
}

// broken says why the connection is of no use any more; nil: it is.
func (w *wire) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// fail cuts and returns the reason.
func (w *wire) fail(what string, err error) error {
	w.cut(&gone{what, err})
	return w.broken()
}

// Read implements net.Conn for the library: the rest of one line at most.
func (w *wire) Read(p []byte) (int, error) {
	if len(w.buf) == 0 {
		if _, err := w.arm(w.timeout); err != nil {
			return 0, err
		}
		if err := w.fill(); err != nil {
			return 0, w.fail("reading a reply", err)
		}
	}
	n := len(w.buf)
	if i := bytes.IndexByte(w.buf, '\n'); i >= 0 {
		n = i + 1
		w.last = lastLine(w.buf[:n])
	}
	n = copy(p, w.buf[:n])
	w.buf = w.buf[n:]
	return n, nil
}

func lastLine(line []byte) reply {
	text := strings.TrimRight(string(line), "\r\n")
	code, _, ok := codeOf(text)
	if !ok {
		return reply{}
	}
	return reply{code: code, lines: []string{textOf(text)}}
}

// fill reads what there is, under the deadline that was armed.
func (w *wire) fill() error {
	w.mu.Lock()
	conn := w.conn
	w.mu.Unlock()
	chunk := make([]byte, 4096)
	n, err := conn.Read(chunk)
	w.buf = append(w.buf, chunk[:n]...)
	if n > 0 {
		return nil
	}
	return err
}

// Write implements net.Conn for the library: one command, since it flushes each.
func (w *wire) Write(p []byte) (int, error) {
	command := strings.TrimRight(string(p), "\r\n")
	w.verb, _, _ = strings.Cut(command, " ")
	if w.instead != nil {
		if answer, instead := w.instead(command); instead {
			w.buf = append(w.buf, answer+"\r\n"...)
			return len(p), w.broken()
		}
	}
	conn, err := w.arm(w.timeout)
	if err != nil {
		return 0, err
	}
	n, err := conn.Write(p)
	if err != nil {
		return n, w.fail("sending a command", err)
	}
	return n, nil
}

// send says a command. What the server has said without being asked, such as the 421 of its idle timeout, is the error.
func (w *wire) send(line string) error {
	w.sent = false
	if strings.ContainsAny(line, "\r\n\x00") {
		return fmt.Errorf("%w: a line end in %q", ErrRefused, line)
	}
	if len(w.buf) > 0 || len(w.partial) > 0 {
		if r, err := w.await(context.Background(), 0); err != nil {
			return err
		} else {
			return w.fail("the server said", errors.New(r.String()))
		}
	}
	conn, err := w.arm(w.timeout)
	if err != nil {
		return err
	}
	w.sent = true
	if _, err := io.WriteString(conn, line+"\r\n"); err != nil {
		return w.fail("sending a command", err)
	}
	return nil
}

// await reads one reply, which has the timeout and extra to come whole. When ctx ends before that it returns
// errInterrupted, and may be called again for the same reply. After any other error the connection is of no use; a 421 is one (RFC
// 959 section 4.2.2: the server is closing it).
func (w *wire) await(ctx context.Context, extra time.Duration) (reply, error) {
	if _, err := w.arm(w.timeout + extra); err != nil {
		return reply{}, err
	}
	r, err := w.interruptible(ctx)
	switch {
	case err != nil && ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) && w.broken() == nil:
		return reply{}, errInterrupted
	case err != nil:
		return reply{}, w.fail("reading a reply", err)
	case r.code == 421:
		return reply{}, w.fail("the server said", errors.New(r.String()))
	}
	return r, nil
}

func (w *wire) interruptible(ctx context.Context) (reply, error) {
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(fired)
		w.mu.Lock()
		defer w.mu.Unlock()
		_ = w.conn.SetReadDeadline(time.Unix(1, 0))
	})
	r, err := w.read()
	if !stop() {
		<-fired // or it would end the next command
	}
	return r, err
}

// read reads to the end of a reply. Where it fails it keeps what has come so far.
func (w *wire) read() (reply, error) {
	size := 0
	for {
		i := bytes.IndexByte(w.buf, '\n')
		if i < 0 {
			if size+len(w.buf) > longestReply {
				return reply{}, errors.New("a reply without an end")
			}
			if err := w.fill(); err != nil {
				return reply{}, err
			}
			continue
		}
		line := strings.TrimRight(string(w.buf[:i]), "\r")
		w.buf = w.buf[i+1:]
		w.partial = append(w.partial, line)
		if size += len(line); size > longestReply {
			return reply{}, errors.New("a reply without an end")
		}
		code, more, ok := codeOf(w.partial[0])
		if !ok {
			return reply{}, fmt.Errorf("%q is no reply of an FTP server", shortened(w.partial[0]))
		}
		if len(w.partial) > 1 {
			last, goesOn, is := codeOf(line)
			more = !is || goesOn || last != code
		}
		if !more {
			return w.whole(code), nil
		}
	}
}

func (w *wire) whole(code int) reply {
	r := reply{code: code, lines: w.partial}
	w.partial = nil
	last := len(r.lines) - 1
	r.lines[0] = textOf(r.lines[0])
	if last > 0 {
		r.lines[last] = textOf(r.lines[last])
	}
	return r
}

// codeOf is the code of a line that has one, and whether lines follow (RFC 959 section 4.2).
func codeOf(line string) (code int, more, ok bool) {
	if len(line) < 3 || len(line) > 3 && line[3] != ' ' && line[3] != '-' {
		return 0, false, false
	}
	code, err := strconv.Atoi(line[:3])
	return code, len(line) > 3 && line[3] == '-', err == nil && code >= 100 && code < 600
}

func textOf(line string) string {
	if len(line) < 4 {
		return ""
	}
	return line[4:]
}

func shortened(s string) string {
	const most = 60
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// ask says a command that is answered at once, and returns the reply. When ctx ends before that, the connection ends, but for resume.
func (w *wire) ask(ctx context.Context, line string) (reply, error) {
	if err := w.send(line); err != nil {
		return reply{}, err
	}
	r, err := w.await(ctx, 0)
	if errors.Is(err, errInterrupted) {
		err = w.fail("waiting for a reply", context.Cause(ctx))
		w.owed = true
		return reply{}, err
	}
	w.owed = errors.Is(err, os.ErrDeadlineExceeded)
	return r, err
}

// resume makes a connection whose last ask was given up of use once more, for one command behind that: a server that was silent
// reads both when it wakes. It reports whether it can be.
func (w *wire) resume() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.owed {
		return false
	}
	w.over = nil
	return true
}

// behind says a command behind the one whose reply is still to come, and returns its reply. Whatever comes of it, the connection is
// not resumed again.
func (w *wire) behind(ctx context.Context, line string) (reply, error) {
	w.owed = false
	conn, err := w.arm(w.timeout)
	if err != nil {
		return reply{}, err
	}
	if _, err := io.WriteString(conn, line+"\r\n"); err != nil {
		return reply{}, w.fail("sending a command", err)
	}
	var r reply
	for range 2 {
		if r, err = w.await(ctx, 0); errors.Is(err, errInterrupted) {
			return reply{}, w.fail("waiting for a reply", context.Cause(ctx))
		}
		if err != nil {
			return reply{}, err
		}
	}
	return r, nil
}

// upgrade puts TLS, or anything else, around the connection.
func (w *wire) upgrade(around func(net.Conn) net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = around(w.conn)
}

// unread gives a reply to the library that was read already.
func (w *wire) unread(r reply) {
	w.buf = append([]byte(strconv.Itoa(r.code)+" "+r.text()+"\r\n"), w.buf...)
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.cut(&gone{"the connection was closed", net.ErrClosed})
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conn.Close()
}

// RemoteAddr implements net.Conn. The library wants a TCP address, from which it takes the host of data connections.
func (w *wire) RemoteAddr() net.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, ok := w.conn.RemoteAddr().(*net.TCPAddr); ok {
		return a
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
}

// LocalAddr implements net.Conn.
func (w *wire) LocalAddr() net.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conn.LocalAddr()
}

// SetDeadline does nothing, nor do the other two: each read and write has a deadline already.
func (w *wire) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (w *wire) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
