//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machineOf describes the machine and the file system of a directory in a line. It leaves out unknown facts.
func machineOf(dir string) string {
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info)
	memory := float64(info.Totalram) * float64(info.Unit) / (1 << 30)
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	kind, _ := exec.Command("findmnt", "--noheadings", "--output", "FSTYPE", "--target", dir).Output()
	return fmt.Sprintf("%d processors (%s), %.0f GiB of memory, Linux %s, %s, %s", runtime.NumCPU(), processorModel(), memory,
		bytes.TrimSpace(kernel), bytes.TrimSpace(kind), runtime.Version())
}

func processorModel() string {
	content, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(content)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// warm touches as much memory as the transfers of a file of the size use. The host of a virtual machine may have taken
// unused memory back, and the first process to touch it waits.
func warm(size int64) error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return err
	}
	n := min(max(512<<20, 4*size), int64(info.Freeram)*int64(info.Unit)/4)
	memory, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("%d bytes of memory: %w", n, err)
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return unix.Munmap(memory)
}
