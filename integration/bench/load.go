//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Every server is logged in to so.
const (
	user     = "anonymous"
	password = "bench"
)

// loaded is the result of one measurement.
type loaded struct {
	rate     float64 // MKD and RMD pairs per second, over all connections
	p50, p99 time.Duration
}

// client is a control connection that speaks raw lines.
type client struct {
	conn net.Conn
	r    *bufio.Reader
}

// patience is the deadline of everything; fsync on a busy disk may take long.
const patience = 2 * time.Minute

func login(ctx context.Context, address string) (*client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, r: bufio.NewReaderSize(conn, 512)}
	if err = conn.SetDeadline(time.Now().Add(patience)); err == nil {
		_, err = c.reply()
	}
	for _, line := range []string{"USER " + user, "PASS " + password} {
		if err == nil {
			_, err = c.do(line)
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// do sends a command; a reply that refuses it is an error.
func (c *client) do(line string) (int, error) {
	if _, err := io.WriteString(c.conn, line+"\r\n"); err != nil {
		return 0, err
	}
	code, err := c.reply()
	if err == nil && code >= 400 {
		err = fmt.Errorf("%s: %d", line, code)
	}
	return code, err
}

// reply reads one reply and returns its code.
func (c *client) reply() (int, error) {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) < 4 || line[3] != ' ' {
			continue // a line of a longer reply
		}
		if code, err := strconv.Atoi(string(line[:3])); err == nil {
			return code, nil
		}
	}
}

// load has n clients take and give back a lock of their own, for so long, and counts the pairs.
func load(ctx context.Context, address, base string, n int, d time.Duration) (loaded, error) {
	clients := make([]*client, n)
	defer func() {
		for _, c := range clients {
			if c != nil {
				c.conn.Close()
			}
		}
	}()
	for i := range clients {
		var err error
		if clients[i], err = login(ctx, address); err != nil {
			return loaded{}, err
		}
	}
	var all sync.WaitGroup
	took := make([][]time.Duration, n)
	errs := make([]error, n)
	start := time.Now()
	end := start.Add(d)
	for i, c := range clients {
		all.Go(func() { took[i], errs[i] = c.pairs(fmt.Sprintf("%s/lock-%d", base, i), end) })
	}
	all.Wait()
	elapsed := time.Since(start)
	times := slices.Concat(took...)
	if err := errors.Join(errs...); err != nil {
		return loaded{}, err
	}
	slices.Sort(times)
	return loaded{
		rate: float64(len(times)) / elapsed.Seconds(),
		p50:  times[len(times)/2], p99: times[len(times)*99/100],
	}, nil
}

// pairs returns how long each MKD with its RMD took.
func (c *client) pairs(name string, end time.Time) (took []time.Duration, err error) {
	for now := time.Now(); now.Before(end) || len(took) == 0; {
		for _, verb := range []string{"MKD ", "RMD "} {
			if _, err := c.do(verb + name); err != nil {
				return nil, err
			}
		}
		after := time.Now()
		took = append(took, after.Sub(now))
		now = after
	}
	return took, nil
}
