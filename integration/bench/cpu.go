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

// spent is how long each thread of a server has been on a processor, by the thread's directory in /proc. Unlike a rate,
// which goes by a clock on the wall, it hardly depends on what else the machine does.
type spent map[string]time.Duration

// spentBy looks at all processes of the server.
func spentBy(p *process) spent {
	now := make(spent)
	for _, pid := range family(p.Cmd.Process.Pid) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is well-formed
		for _, thread := range threads {
			if content, err := os.ReadFile(thread + "/schedstat"); err == nil { // else it has ended
				now[thread] = onProcessor(content)
			}
		}
	}
	return now
}

// since adds up what was spent since then. Threads that have ended meanwhile are not in it: mostly they are those of
// sessions from before.
func (s spent) since(then spent) (total time.Duration) {
	for thread, d := range s {
		total += d - then[thread]
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
