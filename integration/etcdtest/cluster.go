//go:build linux

// Package etcdtest runs clusters of etcd for tests. Each member is a process, which a test can kill, stop and start again. Relays between
// a client and a member delay or drop data.
//
// [Start] starts a [Cluster]; [NewRelay] and [Cluster.Relays] start a [Relay]. All end with the test. Each cluster has random addresses of 127.0.0.0/8,
// so that the clusters of several test programs do not meet, and a restarted member has its ports again.
//
// The first test builds etcd from a module of its own (directory server), which takes a minute, and keeps it in the user's cache
// directory. If that fails, tests are skipped; with FTPLOCKD_REQUIRE_CLIENTS=1 they fail.
package etcdtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is the time within which a cluster must answer.
const patience = 2 * time.Minute

// Cluster is a cluster of etcd. It is for use by the test's own goroutine.
type Cluster struct {
	t       testing.TB
	program string
	dir     string
	flags   []string
	members []*member
	client  *http.Client
}

// member is one member of a cluster.
type member struct {
	name    string
	address string // its host
	log     *os.File
	cmd     *exec.Cmd     // nil: it does not run
	exited  chan struct{} // closed when cmd has ended
	stopped bool
}

func (m *member) client() string { return m.address + ":2379" }
func (m *member) peer() string   { return "http://" + m.address + ":2380" }

// Start starts a cluster of n members with flags of etcd, and returns when all of them answer.
func Start(t testing.TB, n int, flags ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, program: need(t, "etcd"), dir: t.TempDir(), flags: flags, client: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(c.client.CloseIdleConnections)
	network := Network(t)
	for i := range n {
		name := fmt.Sprint("etcd", i+1)
		log, err := os.Create(filepath.Join(c.dir, name+".log"))
		if err != nil {
			t.Fatal(err)
		}
		c.members = append(c.members, &member{name: name, address: fmt.Sprint(network, i+1), log: log})
	}
	t.Cleanup(c.cleanup)
	for i := range c.members {
		c.Restart(i)
	}
	c.Ready()
	return c
}

// Network returns the first part of addresses of this machine, such as "127.17.4.". No other test uses it until the test ends.
func Network(t testing.TB) string {
	t.Helper()
	for range 100 {
		network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(255))
		if taken, err := net.Listen("tcp", network+"254:2379"); err == nil {
			t.Cleanup(func() { taken.Close() })
			return network
		}
	}
	t.Fatal("no network is free")
	return ""
}

// Endpoints returns the addresses of the members, as host:port.
func (c *Cluster) Endpoints() []string {
	var all []string
	for _, m := range c.members {
		all = append(all, m.client())
	}
	return all
}

// Kill sends SIGKILL to a member, and waits for its end.
func (c *Cluster) Kill(i int) {
	m := c.members[i]
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	<-m.exited
	m.cmd, m.stopped = nil, false
}

// Stop stops a member with SIGSTOP. Its connections stay.
func (c *Cluster) Stop(i int) {
	c.t.Helper()
	c.signal(i, syscall.SIGSTOP)
	// The kernel stops the threads one after the other.
	for deadline := time.Now().Add(10 * time.Second); !stopped(c.members[i].cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatal(c.members[i].name, " does not stop")
		}
	}
}

// stopped reports whether all threads of a process are stopped.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		if _, state, ok := strings.Cut(string(text), ") "); !ok || state[0] != 'T' {
			return false
		}
	}
	return len(threads) > 0
}

// Continue continues a stopped member.
func (c *Cluster) Continue(i int) { c.signal(i, syscall.SIGCONT) }

func (c *Cluster) signal(i int, signal syscall.Signal) {
	c.t.Helper()
	m := c.members[i]
	if m.cmd == nil {
		c.t.Fatalf("%s does not run", m.name)
	}
	if err := m.cmd.Process.Signal(signal); err != nil {
		c.t.Fatal(m.name, ": ", err)
	}
	m.stopped = signal == syscall.SIGSTOP
}

// Restart starts a member on its data, after it has killed a running one. It does not wait: see Ready.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	c.Kill(i)
	m := c.members[i]
	var all []string
	for _, other := range c.members {
		all = append(all, other.name+"="+other.peer())
	}
	cmd := exec.Command(c.program, append([]string{
		"--name", m.name, "--data-dir", filepath.Join(c.dir, m.name), "--log-level", "error",
		"--unsafe-no-fsync", // no test ends the power, and the disk may be busy
		"--listen-client-urls", "http://" + m.client(), "--advertise-client-urls", "http://" + m.client(),
		"--listen-peer-urls", m.peer(), "--initial-advertise-peer-urls", m.peer(),
		"--initial-cluster", strings.Join(all, ","), "--initial-cluster-state", "new",
	}, c.flags...)...)
	cmd.Stdout, cmd.Stderr = m.log, m.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	m.cmd, m.exited = cmd, make(chan struct{})
	go func(exited chan struct{}) {
		defer close(exited)
		_ = cmd.Wait()
	}(m.exited)
}

// Ready waits until all members answer that run and are not stopped. They answer only if they are a majority.
func (c *Cluster) Ready() {
	c.t.Helper()
	end := time.Now().Add(patience)
	for i, m := range c.members {
		for m.cmd != nil && !m.stopped {
			err := c.ask(i, "/health", "", nil)
			if err == nil {
				break
			}
			select {
			case <-m.exited:
				c.t.Fatalf("%s has ended: %v", m.name, m.cmd.ProcessState)
			case <-time.After(20 * time.Millisecond):
			}
			if time.Now().After(end) {
				c.t.Fatalf("%s does not answer: %v", m.name, err)
			}
		}
	}
}

// LeaderIndex returns the index of the leader. It waits for the end of an election.
func (c *Cluster) LeaderIndex() int {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for i, m := range c.members {
			if m.cmd == nil || m.stopped {
				continue
			}
			var status struct {
				Header struct {
					Member string `json:"member_id"`
				}
				Leader string
			}
			if c.ask(i, "/v3/maintenance/status", "{}", &status) == nil && status.Leader == status.Header.Member && c.ask(i, "/health", "", nil) == nil {
				return i
			}
		}
	}
	c.t.Fatal("no member of etcd leads")
	return -1
}

// ask sends a request to a member. With a reply it is a request to etcd's gateway, in JSON.
func (c *Cluster) ask(i int, path, body string, reply any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	method := http.MethodGet
	if reply != nil {
		method = http.MethodPost
	}
	q, err := http.NewRequestWithContext(ctx, method, "http://"+c.members[i].client()+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	r, err := c.client.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		return err
	case r.StatusCode != http.StatusOK:
		return errors.New(r.Status + ": " + string(text))
	case reply == nil:
		return nil
	}
	return json.Unmarshal(text, reply)
}

// cleanup ends all members. If the test has failed, it shows their logs.
func (c *Cluster) cleanup() {
	for i, m := range c.members {
		c.Kill(i)
		m.log.Close()
		if !c.t.Failed() {
			continue
		}
		if text, err := os.ReadFile(m.log.Name()); err == nil && len(text) > 0 {
			c.t.Logf("%s:\n%s", m.name, text[max(0, bytes.LastIndexByte(text[:max(0, len(text)-4000)], '\n')+1):])
		}
	}
}
