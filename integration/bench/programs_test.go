//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/integration/peers"
)

// TestMain lets the program of these tests be a client program, as bench is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == programWord {
		os.Exit(program(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// started starts a server of ours, with a tree below the directory that it returns.
func started(t *testing.T, source string, of func(*contest) server) (p *process, dir string) {
	t.Helper()
	c := &contest{dir: t.TempDir()}
	if err := c.build(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	dir = inMemoryDir(t)
	p, err := of(c).start(t.Context(), dir, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p, dir
}

func startedFloor(t *testing.T) (p *process, dir string) {
	t.Helper()
	return started(t, "integration/bench/floor", (*contest).floor)
}

func TestClientProgramsTransferAndLeaveNothing(t *testing.T) {
	p, dir := startedFloor(t)
	before := family(os.Getpid())
	for _, w := range []way{up, down} {
		perSec, cpu, err := byPrograms(t.Context(), p, w, 3, 30*time.Millisecond)
		if err != nil || perSec < 10 || cpu < 1000 || cpu > 1e9 {
			t.Errorf("%s: %v per second, %v ns each, %v", w, perSec, cpu, err)
		}
	}
	if after := family(os.Getpid()); !slices.Equal(before, after) {
		t.Errorf("processes %v, before %v", after, before)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*", "root", "pub", "*")); len(left) > 0 || err != nil {
		t.Errorf("files are left: %q, %v", left, err)
	}
}

// TestFloorPublishesWhatItIsSent is for all of its verbs.
func TestFloorPublishesWhatItIsSent(t *testing.T) {
	p, dir := startedFloor(t)
	c, err := connect(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer c.conn.Close()
	long := job{way: up, size: 300 << 10}
	for _, j := range []job{long, {way: up, size: smallSize}, {way: down, size: smallSize}} { // the second one replaces the first
		if err := c.prepare(t.Context(), j, "/pub/x"); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dir, "*", "root", "pub", "*")
	files, err := filepath.Glob(name)
	if len(files) != 1 || err != nil {
		t.Fatalf("%q, %v", files, err)
	}
	if got, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(got, text()[:smallSize]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, tc := range []struct {
		line string
		code int
	}{{"DELE /pub/x", 250}, {"DELE /pub/x", 550}, {"NOOP", 502}} {
		if code, err := c.ask(tc.line); code != tc.code || err != nil {
			t.Errorf("%s: %d, %v", tc.line, code, err)
		}
	}
	if err := c.transfer(t.Context(), job{way: down, size: smallSize}, "/pub/x"); err == nil {
		t.Error("what is gone was sent")
	}
}

// ready starts a client program that is ready, and returns the process that is the client.
func ready(t *testing.T, ctx context.Context, p *process) (c *clientProgram, client int) {
	t.Helper()
	all, err := startPrograms(ctx, p, up, 1, time.Millisecond)
	t.Cleanup(func() { _ = all.end() })
	if err != nil {
		t.Fatal(err)
	}
	both := family(all[0].cmd.Process.Pid)
	if len(both) != 2 {
		t.Fatalf("processes %v", both)
	}
	return all[0], both[1]
}

// TestNothingLeadsToAClientProgram is what a server that looks at its clients' processes wants of one, see survey in package driver.
func TestNothingLeadsToAClientProgram(t *testing.T) {
	p, _ := startedFloor(t)
	c, client := ready(t, t.Context(), p)
	fmt.Fprintln(c.in, 0)
	if _, _, err := c.result(); err != nil {
		t.Fatal(err)
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", client))
	if err != nil || len(threads) != 1 {
		t.Errorf("%d threads, %v", len(threads), err)
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", client))
	if err != nil {
		t.Fatal(err)
	}
	connections := 0
	for _, link := range links {
		name, err := os.Readlink(link)
		if err != nil {
			t.Fatal(err)
		}
		switch fd := filepath.Base(link); {
		case strings.HasPrefix(name, "socket:"):
			connections++
		case name == os.DevNull, fd == "1" && strings.HasPrefix(name, "pipe:"):
		default:
			t.Errorf("descriptor %s is %s", fd, name)
		}
	}
	if connections != 1 {
		t.Errorf("%d connections", connections)
	}
}

// TestClientProgramEndsWithTheOneThatStartedIt reads the end of what they print: it comes when the last of them is gone.
func TestClientProgramEndsWithTheOneThatStartedIt(t *testing.T) {
	p, _ := startedFloor(t)
	c, _ := ready(t, t.Context(), p)
	fmt.Fprintln(c.in, 0)
	if _, _, err := c.result(); err != nil { // it stays connected, and waits for nothing but its end
		t.Fatal(err)
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, c.out); gone <- err }()
	select {
	case err := <-gone:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the client lives on")
	}
}

// TestClientProgramsEndWithBench kills a process that has started one as bench does.
func TestClientProgramsEndWithBench(t *testing.T) {
	if address := os.Getenv("BENCH_TEST_ADDRESS"); address != "" {
		c, client := ready(t, t.Context(), &process{Process: &peers.Process{Address: address, User: account}, files: "/pub"})
		fmt.Printf("\npids %d %d\n", c.cmd.Process.Pid, client)
		_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
		return
	}
	p, _ := startedFloor(t)
	bench := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	bench.Env = append(os.Environ(), "BENCH_TEST_ADDRESS="+p.Address)
	in, err := bench.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := bench.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bench.Start(); err != nil {
		t.Fatal(err)
	}
	var launcher, client int
	if _, err := fmt.Fscanf(out, "\npids %d %d\n", &launcher, &client); err != nil {
		t.Error(err)
	}
	var watching []int
	for _, pid := range []int{launcher, client} {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		watching = append(watching, fd)
	}
	if err := bench.Process.Kill(); err != nil {
		t.Error(err)
	}
	for i, fd := range watching {
		ended := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ended, 10_000)
		for err == unix.EINTR {
			n, err = unix.Poll(ended, 10_000)
		}
		if n != 1 {
			t.Errorf("process %d lives on: %v", i, err)
		}
	}
	_ = bench.Wait() // it was killed
}

func TestClientProgramSaysWhatWentWrong(t *testing.T) {
	echo, _ := started(t, "integration/bench/echo", (*contest).echo)
	nobody := &process{Process: &peers.Process{Address: "127.0.0.1:1", User: account}, files: "/pub"}
	floor, _ := startedFloor(t)
	floor.files = "/none"
	for _, tc := range []struct {
		p    *process
		want string
	}{
		{echo, "PASV: 200 PASV"}, {nobody, "connection refused"}, {floor, "STOR /none/file-0: 451 broken"},
	} {
		if _, _, err := byPrograms(t.Context(), tc.p, up, 2, time.Millisecond); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	if _, _, err := parseProgram([]string{"1", "2"}); err == nil {
		t.Error("too few arguments")
	}
}

func TestClientProgramsEndWhenNobodyWantsThemAnyMore(t *testing.T) {
	p, _ := startedFloor(t)
	before := family(os.Getpid())
	ctx, cancel := context.WithCancel(t.Context())
	all, err := startPrograms(ctx, p, up, 2, time.Hour)
	if err != nil {
		t.Error(err)
	}
	begun := make(chan error, 1)
	go func() { _, _, err := all.work(p); begun <- err }()
	cancel()
	select {
	case err := <-begun:
		if err == nil {
			t.Error("an hour has gone by")
		}
	case <-time.After(10 * time.Second):
		t.Error("they go on")
	}
	_ = all.end() // killed
	for end := time.Now().Add(10 * time.Second); !slices.Equal(before, family(os.Getpid())); {
		if time.Now().After(end) {
			t.Fatalf("processes %v, before %v", family(os.Getpid()), before)
		}
	}
}

// TestProcessorTimeIsCountedWhileSessionsLive is for servers with a process for each session, whose time is gone with it.
func TestProcessorTimeIsCountedWhileSessionsLive(t *testing.T) {
	peer, err := peers.Find(reference)
	if err != nil || os.Getuid() != 0 {
		t.Skip("vsftpd is not here, or nobody who may start it: ", err)
	}
	p, err := new(contest).peer(peer).start(t.Context(), inMemoryDir(t), false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	_, cpu, err := byPrograms(t.Context(), p, up, 2, 30*time.Millisecond)
	if err != nil || cpu < 1000 {
		t.Errorf("%v ns for each upload, %v", cpu, err)
	}
}
