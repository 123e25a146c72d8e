//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// patience is the deadline of every connection. A measurement takes seconds, but the disk may be busy.
const patience = 2 * time.Minute

// client is a control connection. One goroutine may use it at a time.
type client struct {
	conn   net.Conn
	r      *bufio.Reader
	line   []byte      // a buffer for commands
	secure *tls.Config // nil: data connections are not encrypted
	text   []byte      // the content of files
	buffer []byte      // for downloads
}

// connect connects and logs in.
func connect(ctx context.Context, s *server) (*client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Address)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, r: bufio.NewReaderSize(conn, 512)}
	if err := errors.Join(conn.SetDeadline(time.Now().Add(patience)), c.login(s)); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *client) login(s *server) error {
	if _, _, err := c.reply(); err != nil {
		return err
	}
	if s.tls { // most servers require TLS before the login
		if err := c.encrypt(); err != nil {
			return err
		}
	}
	if err := c.do("USER", s.User); err != nil {
		return err
	}
	return c.do("PASS", password)
}

// encrypt starts TLS, for data connections too (RFC 4217).
func (c *client) encrypt() error {
	if err := c.do("AUTH", "TLS"); err != nil {
		return err
	}
	// The certificate was made for this run; its owner does not matter here.
	c.secure = &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}
	c.conn = tls.Client(c.conn, c.secure)
	c.r = bufio.NewReaderSize(c.conn, 512)
	return errors.Join(c.do("PBSZ", "0"), c.do("PROT", "P"))
}

// do sends a command and reads its reply. A refusal is an error.
func (c *client) do(verb, argument string) error {
	if err := c.send(verb, argument); err != nil {
		return err
	}
	return c.agreed(verb)
}

// agreed reads the reply to a command. A refusal is an error.
func (c *client) agreed(verb string) error {
	code, line, err := c.reply()
	if err == nil && code >= 400 {
		err = fmt.Errorf("%s: %q", verb, line)
	}
	return err
}

func (c *client) send(verb, argument string) error {
	c.line = append(c.line[:0], verb...)
	if argument != "" {
		c.line = append(append(c.line, ' '), argument...)
	}
	c.line = append(c.line, "\r\n"...)
	_, err := c.conn.Write(c.line)
	return err
}

// reply reads one reply. It returns the code and the last line, which is valid until the next call.
func (c *client) reply() (code int, line []byte, err error) {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		if code, last := replyCode(line); last {
			return code, line, nil
		}
	}
}

// replyCode returns the code of the last line of a reply (RFC 959 section 4.2). For other lines last is false.
func replyCode(line []byte) (code int, last bool) {
	if len(line) < 4 || line[3] != ' ' {
		return 0, false
	}
	for _, b := range line[:3] {
		if b < '0' || b > '9' {
			return 0, false
		}
		code = code*10 + int(b-'0')
	}
	return code, true
}

// crowd is a set of logged-in clients.
type crowd []*client

// gather logs n clients in, up to 16 at once.
func gather(ctx context.Context, s *server, n int) (crowd, error) {
	const workers = 16
	all := make(crowd, n)
	err := together(workers, func(w int) (err error) {
		for i := w; i < n && err == nil; i += workers {
			all[i], err = connect(ctx, s)
		}
		return err
	})
	if err != nil {
		all.close()
		return nil, err
	}
	return all, nil
}

func (all crowd) close() {
	for _, c := range all {
		if c != nil {
			c.conn.Close()
		}
	}
}

// together runs n calls at once and returns the first error.
func together(n int, call func(i int) error) error {
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { errs[i] = call(i) })
	}
	calls.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// perSecond runs n goroutines that repeat an operation for the duration, each at least once. It returns the operations
// per second and the CPU time of the server for one.
func perSecond(s *server, n int, d time.Duration, once func(i int) error) (figure, error) {
	counts := make([]int, n)
	before, err := cpuOf(s.Cmd.Process.Pid)
	if err != nil {
		return figure{}, err
	}
	start := time.Now()
	err = together(n, func(i int) error {
		for counts[i] == 0 || time.Since(start) < d {
			if err := once(i); err != nil {
				return err
			}
			counts[i]++
		}
		return nil
	})
	elapsed, total := time.Since(start).Seconds(), 0.0
	after, cpuErr := cpuOf(s.Cmd.Process.Pid)
	for _, count := range counts {
		total += float64(count)
	}
	return figure{total / elapsed, float64((after - before).Nanoseconds()) / 1e3 / total}, errors.Join(err, cpuErr)
}
