//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// cpuOf returns how long the threads of a server that there are now, in all of its processes, have been on a processor.
// Unlike what a clock on the wall says of a rate, it hardly depends on what else the machine does.
func cpuOf(p *process) (total time.Duration) {
	for _, pid := range family(p.cmd.Process.Pid) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is well-formed
		for _, file := range threads {
			if content, err := os.ReadFile(file); err == nil { // else it has ended
				total += onProcessor(content)
			}
		}
	}
	return total
}

// onProcessor reads the first number of a schedstat file, nanoseconds; 0 if there is none (the kernel counts them
// with CONFIG_SCHED_INFO).
func onProcessor(schedstat []byte) time.Duration {
	first, _, _ := bytes.Cut(schedstat, []byte(" "))
	n, err := strconv.ParseInt(string(first), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}

// each is what one of so many things cost; 0 of none.
func each(cost time.Duration, n int) float64 {
	if n == 0 {
		return 0
	}
	return float64(cost) / float64(n)
}
