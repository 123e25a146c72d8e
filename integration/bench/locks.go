//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// lockPairs has n clients take and give back a lock of their own. The figure is pairs per second.
func lockPairs(n int, d time.Duration) func(context.Context, *server) (float64, error) {
	return func(ctx context.Context, s *server) (float64, error) {
		all, err := gather(ctx, s, n)
		if err != nil {
			return 0, err
		}
		defer all.close()
		return perSecond(n, d, func(i int) error {
			name := fmt.Sprintf("%s/lock-%d", s.locks, i)
			if err := all[i].do("MKD", name); err != nil {
				return err
			}
			return all[i].do("RMD", name)
		})
	}
}

// handOver has two clients pass a lock to and fro. The figure is how long it takes, the median in milliseconds.
func handOver(d time.Duration) func(context.Context, *server) (float64, error) {
	return func(ctx context.Context, s *server) (float64, error) {
		both, err := gather(ctx, s, 2)
		if err != nil {
			return 0, err
		}
		defer both.close()
		holder, waiter, lock := both[0], both[1], s.locks+"/passed"
		if err := errors.Join(holder.do("SITE", "WAIT 60"), waiter.do("SITE", "WAIT 60"), holder.do("MKD", lock)); err != nil {
			return 0, err
		}
		var took []float64
		for start := time.Now(); time.Since(start) < d; {
			one, err := pass(holder, waiter, lock)
			if err != nil {
				return 0, err
			}
			took = append(took, float64(one)/float64(time.Millisecond))
			holder, waiter = waiter, holder
		}
		return median(took), holder.do("RMD", lock)
	}
}

// pass measures the time from the holder's RMD to the waiter's 257.
func pass(holder, waiter *client, lock string) (time.Duration, error) {
	if err := waiter.send("MKD", lock); err != nil {
		return 0, err
	}
	time.Sleep(5 * time.Millisecond) // now it waits
	var acquired time.Time
	told := make(chan error, 1)
	start := time.Now()
	go func() {
		err := waiter.agreed("MKD")
		acquired = time.Now()
		told <- err
	}()
	err := errors.Join(holder.do("RMD", lock), <-told)
	return acquired.Sub(start), err
}

// logins has n clients connect, log in, QUIT, and again. Somebody has logged in before: a server may remember the
// password that it verified.
func logins(n int, d time.Duration) func(context.Context, *server) (float64, error) {
	return func(ctx context.Context, s *server) (float64, error) {
		once := func(int) error {
			c, err := connect(ctx, s)
			if err != nil {
				return err
			}
			defer c.conn.Close()
			return c.do("QUIT", "")
		}
		if err := once(0); err != nil {
			return 0, err
		}
		return perSecond(n, d, once)
	}
}
