//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machine is what the figures were found on.
type machine struct {
	Processors int    `json:"processors"`
	Model      string `json:"model"`
	Memory     int64  `json:"memory"` // bytes
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
}

// String is a line without a date or a name.
func (m machine) String() string {
	return fmt.Sprintf("%d processors (%s), %.0f GiB of memory, %s, %s", m.Processors, m.Model, float64(m.Memory)/(1<<30), m.Kernel, m.Go)
}

func thisMachine() machine {
	m := machine{Processors: runtime.NumCPU(), Model: runtime.GOARCH, Kernel: "Linux", Go: runtime.Version()}
	if content, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.Model = processorModel(content, m.Model)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		m.Kernel = "Linux " + unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	return m
}

// processorModel reads a processor's name from /proc/cpuinfo; without one it is what else was known.
func processorModel(cpuinfo []byte, otherwise string) string {
	for line := range bytes.Lines(cpuinfo) {
		if key, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return otherwise
}
