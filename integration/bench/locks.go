//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// ownLocks has n clients take and give back a lock of their own. It returns pairs per second, the median and
// the 99th percentile of a pair's time, and what the server had to do for one on its processors; these in nanoseconds.
func ownLocks(ctx context.Context, p *process, n int, d time.Duration) ([]float64, error) {
	all, err := gather(ctx, p, n)
	if err != nil {
		return nil, err
	}
	defer all.close()
	took := make([][]time.Duration, n)
	before := spentBy(p)
	elapsed, err := all.work(d, func(i int, c *client, until time.Time) (err error) {
		took[i], err = c.pairs(fmt.Sprintf("%s/lock-%d", p.locks, i), until)
		return err
	})
	if err != nil {
		return nil, err
	}
	cpu := spentBy(p).since(before)
	return append(rates(took, elapsed), each(cpu, len(slices.Concat(took...)))), nil
}

// pairs returns how long each MKD with its RMD took.
func (c *client) pairs(name string, until time.Time) (took []time.Duration, err error) {
	acquire, release := "MKD "+name, "RMD "+name
	for now := time.Now(); now.Before(until) || len(took) == 0; {
		if err := c.do(acquire); err != nil {
			return nil, err
		}
		if err := c.do(release); err != nil {
			return nil, err
		}
		after := time.Now()
		took = append(took, after.Sub(now))
		now = after
	}
	return took, nil
}

// logins counts connections that log in and leave. The account is one that was logged in to before: a server may
// remember that, and ftplockd does, since its hash of passwords is slow on purpose.
func logins(ctx context.Context, p *process, d time.Duration) ([]float64, error) {
	c, err := connect(ctx, p)
	if err != nil {
		return nil, err
	}
	c.conn.Close()
	took := make([][]time.Duration, atOnce)
	elapsed, err := make(crowd, atOnce).work(d, func(i int, _ *client, until time.Time) (err error) {
		for now := time.Now(); now.Before(until) && err == nil; {
			err = loginOnce(ctx, p)
			after := time.Now()
			took[i] = append(took[i], after.Sub(now))
			now = after
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return rates(took, elapsed), nil
}

func loginOnce(ctx context.Context, p *process) error {
	c, err := connect(ctx, p)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	return c.do("QUIT")
}
