//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// idleMemory returns how many bytes of memory each of n logged-in, idle connections costs the server: the growth of
// its proportional set size (pages shared by processes are counted once), children included.
func idleMemory(p *process, n int) (float64, error) {
	before, err := groupPSS(p.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	clients := make([]*client, 0, n)
	defer func() {
		for _, c := range clients {
			c.conn.Close()
		}
	}()
	for range n {
		c, err := login(context.Background(), p.address)
		if err != nil {
			return 0, fmt.Errorf("connection %d: %w", len(clients)+1, err)
		}
		clients = append(clients, c)
	}
	after, err := groupPSS(p.cmd.Process.Pid)
	return float64(after-before) / float64(n), err
}

// groupPSS adds up the memory of all processes of a process group, in bytes.
func groupPSS(group int) (total int64, err error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The name of the program, in parentheses, may have blanks; then come state, parent and group.
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
		if fields := strings.Fields(rest); len(fields) < 3 || fields[2] != strconv.Itoa(group) {
			continue
		}
		pss, err := pssOf(dir + "/smaps_rollup")
		if err != nil {
			return 0, err
		}
		total += pss
	}
	return total, nil
}

func pssOf(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &kilobytes); err == nil {
			return kilobytes * 1024, nil
		}
	}
	return 0, errors.New("no Pss in " + file)
}
