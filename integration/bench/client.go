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

// patience is the deadline of every connection. A measurement takes seconds; a sync of a busy disk may take long.
const patience = 2 * time.Minute

// atOnce is how many clients log in at the same time.
const atOnce = 16

// client is a control connection that speaks raw lines. It is for one goroutine.
type client struct {
	conn   net.Conn
	r      *bufio.Reader
	line   []byte      // the memory of what is sent
	secure *tls.Config // nil: data connections are not encrypted
}

// connect connects and logs in.
func connect(ctx context.Context, p *process) (*client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, r: bufio.NewReaderSize(conn, 512)}
	if err := errors.Join(conn.SetDeadline(time.Now().Add(patience)), c.greeted(p)); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *client) greeted(p *process) error {
	if _, err := c.reply(); err != nil {
		return err
	}
	if p.tls { // most servers want it before the login
		if err := c.encrypt(); err != nil {
			return err
		}
	}
	for _, line := range []string{"USER " + p.User, "PASS " + password} {
		if err := c.do(line); err != nil {
			return err
		}
	}
	return nil
}

// encrypt goes over to TLS, for the data connections too (RFC 4217).
func (c *client) encrypt() error {
	if err := c.do("AUTH TLS"); err != nil {
		return err
	}
	// The certificate was made a moment ago, and whose it is does not matter here.
	c.secure = &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"}
	c.conn = tls.Client(c.conn, c.secure)
	c.r = bufio.NewReaderSize(c.conn, 512)
	return errors.Join(c.do("PBSZ 0"), c.do("PROT P"))
}

// do sends a command; a reply that refuses it is an error.
func (c *client) do(line string) error {
	code, err := c.ask(line)
	if err == nil && code >= 400 {
		err = fmt.Errorf("%s: refused with %d", line, code)
	}
	return err
}

// ask sends a command and returns the code of its reply.
func (c *client) ask(line string) (code int, err error) {
	c.line = append(append(c.line[:0], line...), "\r\n"...)
	if _, err := c.conn.Write(c.line); err != nil {
		return 0, err
	}
	return c.reply()
}

// reply reads one reply and returns its code.
func (c *client) reply() (code int, err error) {
	code, _, err = c.replyLine()
	return code, err
}

// replyLine reads one reply and returns its code and its last line, which is valid until the next is read.
func (c *client) replyLine() (code int, line []byte, err error) {
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

// replyCode returns the code of a reply's last line (RFC 959 section 4.2); last is false of its other lines.
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

// crowd is clients that work at the same time.
type crowd []*client

// gather logs n clients in, some at once.
func gather(ctx context.Context, p *process, n int) (crowd, error) {
	all := make(crowd, n)
	errs := make([]error, atOnce)
	var working sync.WaitGroup
	for w := range atOnce {
		working.Go(func() {
			for i := w; i < n && errs[w] == nil; i += atOnce {
				all[i], errs[w] = connect(ctx, p)
			}
		})
	}
	working.Wait()
	if err := errors.Join(errs...); err != nil {
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

// work has every client do its work until the end of the time, and returns how long that took.
func (all crowd) work(d time.Duration, each func(i int, c *client, until time.Time) error) (time.Duration, error) {
	errs := make([]error, len(all))
	var working sync.WaitGroup
	start := time.Now()
	for i, c := range all {
		working.Go(func() { errs[i] = each(i, c, start.Add(d)) })
	}
	working.Wait()
	return time.Since(start), errors.Join(errs...)
}
