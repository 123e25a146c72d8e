//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// idleMemory has n sessions log in and do nothing. The figure is how much more memory the server has for each, in KiB.
func idleMemory(n int, pause time.Duration) func(context.Context, *server) (float64, error) {
	return func(ctx context.Context, s *server) (float64, error) {
		first, err := gather(ctx, s, 16) // what is made with the first sessions is there before it begins
		if err != nil {
			return 0, err
		}
		first.close()
		time.Sleep(pause)
		before, err := memoryOf(s.Cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		all, err := gather(ctx, s, n)
		if err != nil {
			return 0, err
		}
		defer all.close()
		time.Sleep(pause)
		after, err := memoryOf(s.Cmd.Process.Pid)
		return float64(after-before) / float64(n), err
	}
}

// memoryOf adds up the memory of a process and of all that descend from it, in KiB. What they share is counted
// once (PSS). For a server of one process that is its resident memory.
func memoryOf(pid int) (kibibytes int, err error) {
	kibibytes, err = pss(pid)
	if err != nil {
		return 0, err
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	for word := range strings.FieldsSeq(string(children)) {
		child, err := strconv.Atoi(word)
		if err != nil {
			return 0, err
		}
		more, err := memoryOf(child)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it has ended
			return 0, err
		}
		kibibytes += more
	}
	return kibibytes, nil
}

func pss(pid int) (kibibytes int, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &kibibytes); err == nil {
			return kibibytes, nil
		}
	}
	return 0, fmt.Errorf("no Pss in the memory map of process %d", pid)
}
