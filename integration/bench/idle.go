//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// settling is how long a server has to give memory back that its logins needed, where measurements take so long.
func settling(d time.Duration) time.Duration { return min(5*d, 2*time.Second) }

// idleSessions has n sessions log in and do nothing. It returns how much more memory the server has for each of them than
// without any, in KiB, how long the MKD of one more client takes meanwhile, median and 99th percentile, in
// nanoseconds, and how much memory the server has in all, in MiB. Memory is the proportional set size: what
// processes share is counted once.
func idleSessions(ctx context.Context, p *process, n int, d time.Duration) ([]float64, error) {
	idle, before, err := gatherIdle(ctx, p, n, d)
	if err != nil {
		return nil, err
	}
	defer idle.close()
	with, err := settled(p, d)
	if err != nil {
		return nil, err
	}
	times, err := furtherClient(ctx, p, d)
	if err != nil {
		return nil, err
	}
	return slices.Concat(perSession(before, with, n), times, []float64{float64(with) / (1 << 20)}), nil
}

// waitingSessions has further sessions wait for one lock beside n idle ones, and returns the same of them.
func waitingSessions(ctx context.Context, p *process, n, waiting int, d time.Duration) ([]float64, error) {
	idle, _, err := gatherIdle(ctx, p, n, d)
	if err != nil {
		return nil, err
	}
	defer idle.close()
	before, err := settled(p, d)
	if err != nil {
		return nil, err
	}
	holder, err := connect(ctx, p)
	if err != nil {
		return nil, err
	}
	defer holder.conn.Close()
	queue, err := gather(ctx, p, waiting)
	if err != nil {
		return nil, err
	}
	defer queue.close()
	wanted := "MKD " + p.locks + "/wanted_lock"
	if err := errors.Join(holder.do(wanted), queue.patient(d+2*settling(d)), queue.say(wanted)); err != nil {
		return nil, err
	}
	with, err := settled(p, d)
	if err != nil {
		return nil, err
	}
	times, err := furtherClient(ctx, p, d)
	if err != nil {
		return nil, err
	}
	return slices.Concat(perSession(before, with, waiting), times, []float64{float64(with) / (1 << 20)}), queue.unanswered()
}

// gatherIdle logs n clients in, and returns the memory that the server had before. Sessions that need more memory than
// the machine can spare are not begun.
func gatherIdle(ctx context.Context, p *process, n int, d time.Duration) (_ crowd, before int64, err error) {
	first, err := gather(ctx, p, atOnce) // what is made with the first sessions is there before it begins
	if err != nil {
		return nil, 0, err
	}
	first.close()
	if before, err = settled(p, d); err != nil {
		return nil, 0, err
	}
	some, err := gather(ctx, p, min(n, 500))
	if err != nil {
		return nil, 0, err
	}
	if err := affordable(p, before, len(some), n); err != nil {
		some.close()
		return nil, 0, err
	}
	more, err := gather(ctx, p, n-len(some))
	if err != nil {
		some.close()
		return nil, 0, err
	}
	return slices.Concat(some, more), before, nil
}

// settled waits until the server has given back what it had only for a moment, and returns its memory.
func settled(p *process, d time.Duration) (int64, error) {
	time.Sleep(settling(d))
	return memoryOf(p.Cmd.Process.Pid)
}

// perSession returns how many KiB each of n sessions needs.
func perSession(before, with int64, n int) []float64 {
	return []float64{float64(with-before) / float64(n) / (1 << 10)}
}

// affordable is an error if n sessions like those that are there would take more than half of the memory that is free. The
// kernel takes about as much again for a process as its proportional set size.
func affordable(p *process, before int64, have, n int) error {
	now, err := memoryOf(p.Cmd.Process.Pid)
	if err != nil {
		return err
	}
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	need := max(now-before, 0) / int64(have) * int64(n-have)
	if free := available(content); need > free/4 {
		return fmt.Errorf("%d sessions would need %d MiB, and as much again in the kernel; %d MiB are free", n, need>>20, free>>20)
	}
	return nil
}

// available reads from /proc/meminfo how much memory programs could have without swapping, in bytes; 0 if it is not said.
func available(meminfo []byte) (free int64) {
	for line := range bytes.Lines(meminfo) {
		if _, err := fmt.Sscanf(string(line), "MemAvailable: %d kB", &free); err == nil {
			return free << 10
		}
	}
	return 0
}

// furtherClient takes and gives back a lock as fast as it can, and returns the median and the 99th percentile of how long MKD took.
func furtherClient(ctx context.Context, p *process, d time.Duration) ([]float64, error) {
	c, err := connect(ctx, p)
	if err != nil {
		return nil, err
	}
	defer c.conn.Close()
	var took []time.Duration
	for start := time.Now(); time.Since(start) < d || len(took) < 100; {
		before := time.Now()
		if err := c.do("MKD " + p.locks + "/further_lock"); err != nil {
			return nil, err
		}
		took = append(took, time.Since(before))
		if err := c.do("RMD " + p.locks + "/further_lock"); err != nil {
			return nil, err
		}
	}
	return rates([][]time.Duration{took}, d)[1:], nil
}

// say sends a command from each client and reads no reply.
func (all crowd) say(line string) error {
	for _, c := range all {
		if _, err := c.conn.Write([]byte(line + "\r\n")); err != nil {
			return err
		}
	}
	return nil
}

// unanswered is an error if a client has a reply: it was to wait.
func (all crowd) unanswered() error {
	for _, c := range all {
		if err := c.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
			return err
		}
		if code, err := c.reply(); !errors.Is(err, os.ErrDeadlineExceeded) {
			return errors.Join(err, fmt.Errorf("a session that was to wait was answered with %d", code))
		}
	}
	return nil
}
