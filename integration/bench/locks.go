//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// noops sends NOOP on each of n connections. The figure is in commands per second.
func noops(n int, d time.Duration) work {
	return func(ctx context.Context, s *server) (figure, error) {
		all, err := gather(ctx, s, n)
		if err != nil {
			return figure{}, err
		}
		defer all.close()
		return perSecond(s, n, d, func(i int) error { return all[i].do("NOOP", "") })
	}
}

// lockPairs acquires and releases a lock of its own on each of n connections. The names are depth directories below
// the root of locks. The figure is in pairs per second.
func lockPairs(n, depth int, d time.Duration) work {
	return func(ctx context.Context, s *server) (figure, error) {
		parent, err := s.deep(depth)
		if err != nil {
			return figure{}, err
		}
		all, err := gather(ctx, s, n)
		if err != nil {
			return figure{}, err
		}
		defer all.close()
		return perSecond(s, n, d, func(i int) error { return all[i].pair(fmt.Sprintf("%s/lock-%d", parent, i)) })
	}
}

// deep makes nested directories under the root of locks, as a host program would, and returns the FTP path of the last.
func (s *server) deep(depth int) (string, error) {
	dir := s.locks + strings.Repeat("/d", depth)
	if depth == 0 {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Join(s.Root, dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, os.Chmod(filepath.Join(s.Root, dir), 0o777) // vsftpd serves as another user
}

// pair acquires and releases a lock.
func (c *client) pair(name string) error {
	if err := c.do("MKD", name); err != nil {
		return err
	}
	return c.do("RMD", name)
}

// pairCalls counts the system calls of the server for a lock pair, on 16 connections.
func pairCalls(depth, pairs int) work {
	return func(ctx context.Context, s *server) (figure, error) {
		parent, err := s.deep(depth)
		if err != nil {
			return figure{}, err
		}
		const connections = 16
		count := func(pairs int) (int, error) {
			return systemCalls(ctx, s.Cmd.Process.Pid, func() error {
				all, err := gather(ctx, s, connections)
				if err != nil {
					return err
				}
				defer all.close()
				return together(connections, func(i int) (err error) {
					for range pairs {
						err = errors.Join(err, all[i].pair(fmt.Sprintf("%s/counted-%d", parent, i)))
					}
					return err
				})
			})
		}
		few, err := count(pairs) // both counts include the logins
		if err != nil {
			return figure{}, err
		}
		many, err := count(3 * pairs)
		return figure{float64(many-few) / float64(2*pairs*connections), noCPU}, err
	}
}

// handOver lets two clients pass a lock to each other. The figure is the median time in milliseconds.
func handOver(d time.Duration) work {
	return func(ctx context.Context, s *server) (figure, error) {
		both, err := gather(ctx, s, 2)
		if err != nil {
			return figure{}, err
		}
		defer both.close()
		holder, waiter, lock := both[0], both[1], s.locks+"/passed"
		if err := errors.Join(holder.do("SITE", "WAIT 60"), waiter.do("SITE", "WAIT 60"), holder.do("MKD", lock)); err != nil {
			return figure{}, err
		}
		var took []float64
		for start := time.Now(); time.Since(start) < d; {
			one, err := pass(holder, waiter, lock)
			if err != nil {
				return figure{}, err
			}
			took = append(took, float64(one)/float64(time.Millisecond))
			holder, waiter = waiter, holder
		}
		return figure{median(took), noCPU}, holder.do("RMD", lock)
	}
}

// pass measures the time from the holder's RMD to the waiter's 257.
func pass(holder, waiter *client, lock string) (time.Duration, error) {
	if err := waiter.send("MKD", lock); err != nil {
		return 0, err
	}
	time.Sleep(5 * time.Millisecond) // until the server has queued the waiter
	var acquired time.Time
	granted := make(chan error, 1)
	start := time.Now()
	go func() {
		err := waiter.agreed("MKD")
		acquired = time.Now()
		granted <- err
	}()
	err := errors.Join(holder.do("RMD", lock), <-granted)
	return acquired.Sub(start), err
}
