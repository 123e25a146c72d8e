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
	"time"
)

// way is the direction of a transfer.
type way string

const (
	up   way = "up"
	down way = "down"
)

// job describes the repeated transfer of a file.
type job struct {
	way       way
	size      int64 // on the wire
	ascii     bool
	tls       bool
	announced bool // with ALLO
}

func (j job) String() string {
	text := fmt.Sprintf("%d MiB %s", j.size>>20, j.way)
	if j.small() {
		text = fmt.Sprintf("%d KiB %s", j.size>>10, j.way)
	}
	switch {
	case j.ascii:
		text += ", ASCII"
	case j.tls:
		text += ", TLS"
	case j.announced:
		text += ", ALLO"
	}
	return text
}

func (j job) small() bool { return j.size < 1<<20 }

// transfers repeats transfers of a file on each of n connections. The figure is in files per second for small files and
// in MB per second for others.
func transfers(j job, n int, d time.Duration) work {
	return func(ctx context.Context, s *server) (figure, error) {
		all, err := gather(ctx, s, n)
		if err != nil {
			return figure{}, err
		}
		defer all.close()
		text := bytes.Repeat([]byte(textLine), int(min(j.size, 256<<10))/len(textLine))
		for i, c := range all {
			c.text, c.buffer = text, make([]byte, len(text))
			if err := c.prepare(ctx, j, fileName(i)); err != nil {
				return figure{}, err
			}
		}
		if !j.small() {
			if err := warm(j.size); err != nil {
				return figure{}, err
			}
		}
		rate, err := perSecond(s, n, d, func(i int) error { return all[i].transfer(ctx, j, fileName(i)) })
		if !j.small() {
			rate.value *= float64(j.size) / 1e6
		}
		for i, c := range all { // before the system writes a large file to the disk
			err = errors.Join(err, c.do("DELE", fileName(i)))
		}
		return rate, err
	}
}

func fileName(i int) string { return fmt.Sprintf("/pub/file-%d", i) }

// prepare sets the type and uploads the file that the transfers replace or fetch.
func (c *client) prepare(ctx context.Context, j job, name string) error {
	kind := "I"
	if j.ascii {
		kind = "A"
	}
	if err := c.do("TYPE", kind); err != nil {
		return err
	}
	j.way = up
	return c.transfer(ctx, j, name)
}

// transfer transfers the file once, in passive mode.
func (c *client) transfer(ctx context.Context, j job, name string) error {
	if j.announced {
		if err := c.do("ALLO", strconv.FormatInt(j.size, 10)); err != nil {
			return err
		}
	}
	verb, move := "STOR", c.upload
	if j.way == down {
		verb, move = "RETR", c.download
	}
	conn, err := c.passive(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := c.do(verb, name); err != nil { // 125 or 150
		return err
	}
	if c.secure != nil {
		conn = tls.Client(conn, c.secure)
	}
	if err := errors.Join(move(conn, j.size), hangUp(conn)); err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return c.agreed(verb)
}

// passive opens a data connection.
func (c *client) passive(ctx context.Context) (net.Conn, error) {
	if err := c.send("PASV", ""); err != nil {
		return nil, err
	}
	_, line, err := c.reply()
	if err != nil {
		return nil, err
	}
	port, ok := passivePort(line)
	if !ok {
		return nil, fmt.Errorf("PASV: %q", line)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

// passivePort reads the port of a 227: the last two of six numbers in parentheses.
func passivePort(line []byte) (port int, ok bool) {
	_, rest, _ := bytes.Cut(line, []byte("("))
	inside, _, closed := bytes.Cut(rest, []byte(")"))
	numbers := bytes.Split(inside, []byte(","))
	if !closed || len(numbers) != 6 {
		return 0, false
	}
	high, err := strconv.ParseUint(string(numbers[4]), 10, 8)
	low, lowErr := strconv.ParseUint(string(numbers[5]), 10, 8)
	return int(high<<8 | low), err == nil && lowErr == nil
}

// hangUp ends a data connection. Under TLS 1.3 it first reads the session tickets of the server: a close with unread
// data would reset the connection, and the server would lose data that it has not read yet.
func hangUp(conn net.Conn) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return conn.Close()
	}
	if err := secure.CloseWrite(); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, secure) // some servers end without close_notify
	return nil
}

// textLine is the repeated content of files. Its length divides the size of every file.
const textLine = "A line of sixty-four bytes, its CR LF included, as text has it\r\n"

func (c *client) upload(conn net.Conn, size int64) error {
	for size > 0 {
		n, err := conn.Write(c.text[:min(size, int64(len(c.text)))])
		if err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

// download reads to the end and checks the size.
func (c *client) download(conn net.Conn, size int64) error {
	// io.CopyBuffer uses the buffer only for a plain reader and writer.
	got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, c.buffer)
	if err == nil && got != size {
		err = fmt.Errorf("received %d bytes instead of %d", got, size)
	}
	return err
}
