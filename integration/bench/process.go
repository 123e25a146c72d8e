//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// noCPU is the CPU time of a figure without one.
var noCPU = math.NaN()

// idleMemory opens n sessions that log in and do nothing. The figure is the memory of one session in KiB.
func idleMemory(n int, pause time.Duration) work {
	return func(ctx context.Context, s *server) (figure, error) {
		first, err := gather(ctx, s, 16) // the server makes once what all sessions share
		if err != nil {
			return figure{}, err
		}
		first.close()
		time.Sleep(pause)
		before, err := memoryOf(s.Cmd.Process.Pid)
		if err != nil {
			return figure{}, err
		}
		all, err := gather(ctx, s, n)
		if err != nil {
			return figure{}, err
		}
		defer all.close()
		time.Sleep(pause)
		after, err := memoryOf(s.Cmd.Process.Pid)
		return figure{float64(after-before) / float64(n), noCPU}, err
	}
}

// family calls a function for a process and its descendants. A process that has ended is no error.
func family(pid int, each func(dir string) error) error {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	if err := each(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lists, err := filepath.Glob(filepath.Join(dir, "task/*/children"))
	if err != nil {
		return err
	}
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for word := range strings.FieldsSeq(string(children)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return err
			}
			if err := family(child, each); err != nil {
				return err
			}
		}
	}
	return nil
}

// memoryOf returns the memory of a process and its descendants in KiB. Shared pages count once (PSS).
func memoryOf(pid int) (kibibytes int, err error) {
	err = family(pid, func(dir string) error {
		content, err := os.ReadFile(filepath.Join(dir, "smaps_rollup"))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(content)) {
			var one int
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &one); err == nil {
				kibibytes += one
				return nil
			}
		}
		return fmt.Errorf("%s/smaps_rollup has no Pss", dir)
	})
	return kibibytes, err
}

// cpuOf returns the CPU time of a process and its descendants, from the scheduler's statistics of their threads.
func cpuOf(pid int) (cpu time.Duration, err error) {
	err = family(pid, func(dir string) error {
		threads, err := filepath.Glob(filepath.Join(dir, "task/*/schedstat"))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			content, err := os.ReadFile(thread)
			if err != nil {
				continue // the thread has ended
			}
			var nanoseconds int64
			if _, err := fmt.Sscan(string(content), &nanoseconds); err != nil {
				return fmt.Errorf("%s: %w", thread, err)
			}
			cpu += time.Duration(nanoseconds)
		}
		return nil
	})
	return cpu, err
}

// systemCalls counts the system calls of a process and its descendants during a call, with strace(1).
func systemCalls(ctx context.Context, pid int, call func() error) (int, error) {
	var summary bytes.Buffer
	trace := exec.CommandContext(ctx, "strace", "-f", "-qq", "-c", "-U", "calls", "-p", strconv.Itoa(pid))
	trace.Stderr = &summary
	if err := trace.Start(); err != nil {
		return 0, err
	}
	attached := waitTraced(pid)
	err := errors.Join(attached, call(), trace.Process.Signal(os.Interrupt))
	_ = trace.Wait() // strace ends by the signal
	if err != nil {
		return 0, err
	}
	total := 0
	for word := range strings.FieldsSeq(summary.String()) { // the last number is the total
		if n, err := strconv.Atoi(word); err == nil {
			total = n
		}
	}
	if total == 0 {
		return 0, fmt.Errorf("strace counted nothing: %q", summary.String())
	}
	return total, nil
}

// waitTraced waits until a tracer has attached to all threads of a process.
func waitTraced(pid int) error {
	for range 200 {
		traced, threads := 0, 0
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		for _, file := range files {
			content, _ := os.ReadFile(file)
			threads++
			if !strings.Contains(string(content), "TracerPid:\t0\n") {
				traced++
			}
		}
		if threads > 0 && traced == threads {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("strace did not attach to process %d", pid)
}
