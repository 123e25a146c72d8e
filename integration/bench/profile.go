//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// watched runs the work and, if a file is named, has perf(1) watch the process meanwhile: a list of functions with what
// each cost by itself, the kernel's included, and below it the same with what they call.
func watched(p *process, file string, work func() ([]float64, error)) ([]float64, error) {
	if file == "" {
		return work()
	}
	data := file + ".data"
	defer os.Remove(data)
	// The clock is there in virtual machines, too; 999 Hz, not to be in step with anything.
	perf := exec.Command("perf", "record", "-q", "-e", "cpu-clock", "-F", "999", "-g", "-o", data, "-p", strconv.Itoa(p.Cmd.Process.Pid))
	perf.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := perf.Start(); err != nil {
		return nil, err
	}
	values, err := work()
	_ = perf.Process.Signal(os.Interrupt)
	var exit *exec.ExitError
	if werr := perf.Wait(); werr != nil && !errors.As(werr, &exit) { // it ends with the signal that ended it
		err = errors.Join(err, werr)
	}
	if err != nil {
		return nil, err
	}
	return values, profileReport(data, file, values)
}

func profileReport(data, file string, values []float64) error {
	text := fmt.Appendf(nil, "values under perf: %v\n", values)
	for _, list := range []struct{ title, children, fields string }{
		{"each function by itself", "--no-children", "overhead,sym"},
		{"each function with what it calls", "--children", "overhead_children,overhead,sym"},
	} {
		cmd := exec.Command("perf", "report", "-q", "-i", data, "--stdio", "-g", "none", "--percent-limit", "0.5", list.children, "-F", list.fields)
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("perf report: %w", err)
		}
		text = fmt.Appendf(text, "\n%s:\n%s", list.title, out)
	}
	return os.WriteFile(file, text, 0o644)
}
