package hook

import (
	"bytes"
	"os"
	"strconv"
)

// killMarked kills the processes that have the mark in their environment. It repeats the scan until one finds none, because a
// process may start another one during a scan.
func killMarked(mark string) {
	for range 100 { // bounds the time if a process cannot be killed
		if !killMarkedOnce([]byte(mark)) {
			return
		}
	}
}

// killMarkedOnce kills the marked processes that exist now, and reports whether there were any.
func killMarkedOnce(mark []byte) (found bool) {
	all, _ := os.ReadDir("/proc") // without /proc the group alone is killed
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		p, err := os.FindProcess(pid) // before the look at its environment: the number may get another process
		if err != nil {
			continue
		}
		// The file of a killed process is empty.
		environment, _ := os.ReadFile("/proc/" + entry.Name() + "/environ")
		for v := range bytes.SplitSeq(environment, []byte{0}) {
			if bytes.Equal(v, mark) {
				found = true
				_ = p.Kill() // it has ended
				break
			}
		}
		_ = p.Release()
	}
	return found
}
