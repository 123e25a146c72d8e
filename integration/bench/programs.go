//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// headStart is the time between the word to begin and the beginning: all programs have read it by then.
const headStart = 10 * time.Millisecond

// byPrograms has n client programs transfer a small file each, over and over. It returns the same as transfers.
func byPrograms(ctx context.Context, p *process, w way, n int, d time.Duration) (perSec, cpuEach float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := startPrograms(ctx, p, w, n, d)
	if err == nil {
		perSec, cpuEach, err = all.work(p)
	}
	if err := errors.Join(err, all.end()); err != nil {
		return 0, 0, err
	}
	return perSec, cpuEach, removeFiles(ctx, p, n)
}

// programs are client programs that run.
type programs []*clientProgram

// startPrograms returns when all are ready. Those that it starts are returned even with an error, to be ended.
func startPrograms(ctx context.Context, p *process, w way, n int, d time.Duration) (all programs, err error) {
	for i := range n {
		c, err := startProgram(ctx, p, w, fileOf(p, i), d)
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	for _, c := range all {
		if err := c.ready(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// work has them transfer. The server's sessions, which may be processes, live until the end of it.
func (all programs) work(p *process) (perSec, cpuEach float64, err error) {
	before := spentBy(p)
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, 0, err
	}
	for _, c := range all {
		if _, err := fmt.Fprintln(c.in, now.Nano()+int64(headStart)); err != nil {
			return 0, 0, err
		}
	}
	total, longest := 0, time.Duration(0)
	for _, c := range all {
		count, elapsed, err := c.result()
		if err != nil {
			return 0, 0, err
		}
		total, longest = total+count, max(longest, elapsed)
	}
	return perSecond(total, longest), each(spentBy(p).since(before), total), nil
}

// end ends all and waits for them.
func (all programs) end() (err error) {
	for _, c := range all {
		c.in.Close()
	}
	for _, c := range all {
		err = errors.Join(err, c.cmd.Wait())
	}
	return err
}

// clientProgram is one of them, see programWord.
type clientProgram struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startProgram starts one that ends with the context and with this program.
func startProgram(ctx context.Context, p *process, w way, name string, d time.Duration) (*clientProgram, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(p.Address, ":")
	cmd := exec.CommandContext(ctx, self, programWord, port, p.User, string(w), name, d.String())
	cmd.Env, cmd.SysProcAttr = programEnvironment(), &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &clientProgram{cmd: cmd, in: in, out: bufio.NewReader(out)}, cmd.Start()
}

// says returns the next line that it prints.
func (c *clientProgram) says() (string, error) {
	line, err := c.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (c *clientProgram) ready() error {
	line, err := c.says()
	if err == nil && line != "ready" {
		err = fmt.Errorf("a client program: %s", line)
	}
	return err
}

func (c *clientProgram) result() (count int, elapsed time.Duration, err error) {
	line, err := c.says()
	if err != nil {
		return 0, 0, err
	}
	if _, err := fmt.Sscan(line, &count, (*int64)(&elapsed)); err != nil {
		return 0, 0, fmt.Errorf("a client program: %s", line)
	}
	return count, elapsed, nil
}

// removeFiles removes what n clients have put there.
func removeFiles(ctx context.Context, p *process, n int) error {
	c, err := connect(ctx, p)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	for i := range n {
		err = errors.Join(err, c.do("DELE "+fileOf(p, i)))
	}
	return err
}
