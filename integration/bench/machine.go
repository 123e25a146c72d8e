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

// warmth is how many bytes of memory are touched before files are transferred: with half as much, some of what the servers take then is cold. Small
// files need less, warmthPerByte of theirs.
const warmth, warmthPerByte = 2 << 30, 2 << 10

// warm has the host of a virtual machine give back memory that it took away while nobody used it, a quarter of what is free at most:
// whoever touches such memory first waits for that, and a server that makes a new file for each upload touches more than one that
// overwrites the old one.
func warm(bytes int64) error {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	bytes = min(bytes, available(content)/4)
	memory, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("%d bytes of memory: %w", bytes, err)
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return unix.Munmap(memory)
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
