//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// memoryOf adds up the memory of a process and of all that descend from it, in bytes.
func memoryOf(pid int) (total int64, err error) {
	for _, pid := range family(pid) {
		pss, err := pssOf(pid)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return 0, err
		}
		total += pss
	}
	return total, nil
}

// family returns a process and its descendants.
func family(pid int) []int {
	children := make(map[int][]int)
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it has ended
		}
		id, _ := strconv.Atoi(filepath.Base(dir))
		if parent, ok := parentOf(stat); ok {
			children[parent] = append(children[parent], id)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// parentOf reads the parent from /proc/PID/stat. The program's name, in parentheses, may have blanks and parentheses;
// state and parent follow it (proc(5)).
func parentOf(stat []byte) (pid int, ok bool) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0, false
	}
	pid, err := strconv.Atoi(fields[1])
	return pid, err == nil
}

func pssOf(pid int) (int64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	kilobytes, ok := pss(content)
	if !ok {
		return 0, fmt.Errorf("no Pss in the memory map of process %d", pid)
	}
	return kilobytes << 10, nil
}

// pss reads the proportional set size from smaps_rollup.
func pss(content []byte) (kilobytes int64, ok bool) {
	for line := range strings.Lines(string(content)) {
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &kilobytes); err == nil {
			return kilobytes, true
		}
	}
	return 0, false
}
