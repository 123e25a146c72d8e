//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// way is the direction of a transfer.
type way string

const (
	up   way = "up"
	down way = "down"
)

// job is a file that is transferred over and over.
type job struct {
	way   way
	size  int64 // on the wire
	ascii bool
}

func (j job) String() string {
	kind := ""
	if j.ascii {
		kind = "ASCII "
	}
	return fmt.Sprintf("%s%d MiB %s", kind, j.size>>20, j.way)
}

// transfers has n clients transfer a file each, over and over. It returns how many there were per second, and what the
// server had to do for one on its processors, in nanoseconds.
func transfers(ctx context.Context, p *process, j job, n int, d time.Duration) (perSec, cpuEach float64, err error) {
	all, err := gather(ctx, p, n)
	if err != nil {
		return 0, 0, err
	}
	defer all.close()
	for i, c := range all {
		if err := c.prepare(ctx, j, fileOf(p, i)); err != nil {
			return 0, 0, err
		}
	}
	if err := warm(min(warmth, warmthPerByte*j.size*int64(n))); err != nil {
		return 0, 0, err
	}
	counts := make([]int, n)
	before := spentBy(p)
	elapsed, err := all.work(d, func(i int, c *client, until time.Time) error {
		for time.Now().Before(until) || counts[i] == 0 {
			if err := c.transfer(ctx, j, fileOf(p, i)); err != nil {
				return err
			}
			counts[i]++
		}
		return nil
	})
	cpu := spentBy(p).since(before)
	for i, c := range all { // a large file is best gone before it is written to the disk
		err = errors.Join(err, c.do("DELE "+fileOf(p, i)))
	}
	return perSecond(sum(counts), elapsed), each(cpu, sum(counts)), err
}

func fileOf(p *process, i int) string { return fmt.Sprintf("%s/file-%d", p.files, i) }

// prepare sets the type, and puts the file there that is to be replaced or fetched.
func (c *client) prepare(ctx context.Context, j job, name string) error {
	kind := "TYPE I"
	if j.ascii {
		kind = "TYPE A"
	}
	if err := c.do(kind); err != nil {
		return err
	}
	return c.transfer(ctx, job{way: up, size: j.size, ascii: j.ascii}, name)
}

// transfer transfers the file once, in passive mode.
func (c *client) transfer(ctx context.Context, j job, name string) error {
	conn, err := c.passive(ctx)
	if err != nil {
		return err
	}
	verb, move := "STOR ", send
	if j.way == down {
		verb, move = "RETR ", receive
	}
	if err := c.do(verb + name); err != nil { // 125 or 150
		conn.Close()
		return err
	}
	if c.secure != nil {
		conn = tls.Client(conn, c.secure)
	}
	if err := errors.Join(move(conn, j.size), hangUp(conn)); err != nil {
		return fmt.Errorf("%s%s: %w", verb, name, err)
	}
	if code, err := c.reply(); err != nil || code != 226 && code != 250 {
		return errors.Join(err, fmt.Errorf("%s%s: ended with %d", verb, name, code))
	}
	return nil
}

// passive opens a data connection.
func (c *client) passive(ctx context.Context) (net.Conn, error) {
	c.line = append(c.line[:0], "PASV\r\n"...)
	if _, err := c.conn.Write(c.line); err != nil {
		return nil, err
	}
	code, line, err := c.replyLine()
	if err != nil {
		return nil, err
	}
	port, ok := passivePort(line)
	if code != 227 || !ok {
		return nil, fmt.Errorf("PASV: %q", line)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

// passivePort reads the port of a 227: the last two of six numbers (RFC 1123 section 4.1.2.6 says how to look for them).
func passivePort(line []byte) (port int, ok bool) {
	_, rest, _ := bytes.Cut(line, []byte("("))
	rest, _, closed := bytes.Cut(rest, []byte(")"))
	more := true
	for range 6 {
		var part []byte
		part, rest, more = bytes.Cut(rest, []byte(","))
		number, err := strconv.ParseUint(string(part), 10, 8)
		if err != nil {
			return 0, false
		}
		port = port<<8&0xff00 | int(number)
	}
	return port, closed && !more
}

// hangUp closes a data connection. Under TLS 1.3 the server has sent session tickets; were they unread, closing
// would reset the connection and the server lose what it has not read yet. So it is read to its end.
func hangUp(conn net.Conn) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return conn.Close()
	}
	defer conn.Close()
	if err := secure.CloseWrite(); err != nil {
		return err
	}
	if tcp, ok := secure.NetConn().(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // it may have been closed by the server, which is as good
	}
	_, _ = io.Copy(io.Discard, secure) // some servers end without close_notify
	return nil
}

// textLine is what files consist of, in every type. Its length divides every size that is measured.
const textLine = "A line of sixty-four bytes, its CR LF included, as text has it\r\n"

// text is many lines, to be sent and never changed.
var text = sync.OnceValue(func() []byte { return bytes.Repeat([]byte(textLine), (256<<10)/len(textLine)) })

func send(conn net.Conn, size int64) error {
	for size > 0 {
		n, err := conn.Write(text()[:min(size, int64(len(text())))])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

// buffers are what is received into.
var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

// receive reads until the end, which is to come after so many bytes.
func receive(conn net.Conn, size int64) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	var got int64
	for {
		n, err := conn.Read(*buffer)
		got += int64(n)
		switch {
		case err == io.EOF && got == size:
			return nil
		case err == io.EOF:
			return fmt.Errorf("%d bytes came instead of %d", got, size)
		case err != nil:
			return err
		}
	}
}
