package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The figures of what lifetimes cost. They are for a machine that does nothing else, so they do not run in parallel:
//
//	go test ./integration -long -v -run TestFigure

// figure skips a test without -long.
func figure(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("a figure: give -long")
	}
}

// within checks a limit of a figure, but not under the race detector.
func within(t *testing.T, what string, got, limit time.Duration) {
	t.Helper()
	if got > limit && !raceEnabled {
		t.Errorf("%s: %v, the limit is %v", what, got, limit)
	}
}

// quantiles are the median, the 99th percentile and the largest of some durations, which it sorts.
func quantiles(all []time.Duration) (p50, p99, most time.Duration) {
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100], all[len(all)-1]
}

// volatile is for figures of what is in memory: nothing is synced, and no directory is made.
const volatile = "[locks]\ndirectories = false\ndurable = false\n"

func TestFigureFromAKilledHolderToTheNext(t *testing.T) {
	figure(t)
	for _, next := range []struct {
		name string
		get  func(t *testing.T, c *session, killed <-chan time.Time) (took time.Duration)
	}{
		{"a client that asks each 2 ms", func(t *testing.T, c *session, killed <-chan time.Time) time.Duration {
			at := <-killed
			for c.wantEither("MKD /locks/job").code != 257 {
				time.Sleep(2 * time.Millisecond)
			}
			return time.Since(at)
		}},
		{"a client that waits", func(t *testing.T, c *session, killed <-chan time.Time) time.Duration {
			c.want(200, "SITE WAIT 60")
			if err := c.send("MKD /locks/job"); err != nil {
				t.Fatal(err)
			}
			at := <-killed
			c.wantReply(257)
			return time.Since(at)
		}},
	} {
		t.Run(next.name, func(t *testing.T) {
			s := startServer(t, released)
			host, port := split(s.v4)
			other := s.session("other")
			self := goChild(t, "hold", host, port, account, password, "/locks/job")
			var all []time.Duration
			for range 1000 {
				p := launch(t, command(t, self[0], self[1:]...))
				if p.line() == "" {
					t.Fatal("the client did not get the lock")
				}
				killed := make(chan time.Time, 1)
				go func() {
					time.Sleep(3 * time.Millisecond) // the other one waits by then
					killed <- time.Now()
					_ = p.cmd.Process.Kill()
				}()
				all = append(all, next.get(t, other, killed))
				other.want(250, "RMD /locks/job")
				p.kill()
			}
			p50, p99, most := quantiles(all)
			t.Logf("from SIGKILL of the holder to the 257 of %s: median %v, p99 %v, max %v", next.name, p50, p99, most)
			within(t, "p99", p99, 50*time.Millisecond)
		})
	}
}

// taken is when the client sent MKD, and when it had the reply.
type taken struct{ sent, answered time.Time }

// take has some sessions take so many locks, /locks/0 and so on, a few hundred commands ahead of the replies.
func (s *server) take(t *testing.T, prefix string, n int) []taken {
	t.Helper()
	const sessions, ahead = 4, 250
	all := make([]taken, n)
	var running sync.WaitGroup
	for first := range sessions {
		c := s.session(account)
		running.Go(func() {
			var mine []int
			for i := first; i < n; i += sessions {
				mine = append(mine, i)
			}
			for batch := range slices.Chunk(mine, ahead) {
				if err := c.takeBatch(prefix, batch, all); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return all
}

func (s *session) takeBatch(prefix string, batch []int, all []taken) error {
	var lines bytes.Buffer
	for _, i := range batch {
		fmt.Fprintf(&lines, "MKD %s%d\r\n", prefix, i)
	}
	sent := time.Now()
	if err := s.conn.SetDeadline(sent.Add(patience)); err != nil {
		return err
	}
	if _, err := s.conn.Write(lines.Bytes()); err != nil {
		return err
	}
	for _, i := range batch {
		r, err := s.readReply()
		if err != nil {
			return err
		}
		if r.code != 257 {
			return fmt.Errorf("MKD %s%d: %v", prefix, i, r)
		}
		all[i] = taken{sent, time.Now()}
	}
	return nil
}

// endLine is a line of the log. It is written after the end of the lock.
var endLine = regexp.MustCompile(`(?m)^time=(\S+) level=INFO msg="lock ended" lock=/locks/(\d+) cause=expire `)

func TestFigureReapingIsNeverEarlyAndSeldomLate(t *testing.T) {
	figure(t)
	const n, age = 100_000, 40 * time.Second
	s := startServer(t, volatile+fmt.Sprintf("[[lock]]\nmatch = \"/locks/**\"\nmax_age = %q\n", age))
	begun := time.Now()
	all := s.take(t, "/locks/", n)
	t.Logf("%d locks taken in %v", n, time.Since(begun).Round(time.Millisecond))
	if took := time.Since(begun); took > age {
		t.Fatalf("this machine takes %v to take them", took)
	}
	time.Sleep(time.Until(all[n-1].answered.Add(age + time.Second)))
	s.log.await(t, "cause=expire", n)
	var late []time.Duration
	for _, m := range endLine.FindAllStringSubmatch(s.log.String(), -1) {
		ended, err := time.Parse(time.RFC3339Nano, m[1])
		i, ierr := strconv.Atoi(m[2])
		if err != nil || ierr != nil {
			t.Fatal(m[0], err, ierr)
		}
		// The log has milliseconds, cut off.
		if early := all[i].sent.Add(age).Sub(ended.Add(time.Millisecond)); early > 0 {
			t.Fatalf("%s ended %v early", m[2], early)
		}
		late = append(late, ended.Sub(all[i].answered.Add(age)))
	}
	if len(late) != n {
		t.Fatalf("%d ends of %d", len(late), n)
	}
	p50, p99, most := quantiles(late)
	t.Logf("%d locks reaped after %v, late by: median %v, p99 %v, max %v; none was early", n, age, p50, p99, most)
	within(t, "p99", p99, time.Second)
}

// processorTime is what a process has used, from /proc.
func processorTime(t *testing.T, pid int) (used time.Duration) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		t.Skip("this kernel does not tell of processor time")
	}
	for _, file := range threads {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		first, _, _ := strings.Cut(string(data), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		used += time.Duration(ns)
	}
	return used
}

// load is the share of one processor that the server uses for some seconds.
func (s *server) load(t *testing.T, d time.Duration) float64 {
	t.Helper()
	before, start := processorTime(t, s.cmd.Process.Pid), time.Now()
	time.Sleep(d)
	return float64(processorTime(t, s.cmd.Process.Pid)-before) / float64(time.Since(start))
}

func TestFigureProcessorTimeOfTheReaper(t *testing.T) {
	figure(t)
	for _, held := range []int{1000, 10_000, 100_000} {
		t.Run(fmt.Sprint(held), func(t *testing.T) {
			s := startServer(t, volatile+"[[lock]]\nmatch = \"/locks/soon-*\"\nmax_age = \"20s\"\n"+hour)
			s.take(t, "/locks/", held)
			c := s.session(account)
			time.Sleep(2 * time.Second) // the collector's work on what was garbage
			quiet := s.load(t, 10*time.Second)
			for i, tick := 0, time.NewTicker(10*time.Millisecond); i < 1500; i++ {
				<-tick.C
				c.want(257, fmt.Sprintf("MKD /locks/soon-%d", i))
			}
			s.log.await(t, "cause=expire", 1)
			busy := s.load(t, 10*time.Second)
			ended := strings.Count(s.log.String(), "cause=expire")
			t.Logf("%d held: %.3f%% of one processor with none expiring, %.3f%% with 100 a second expiring", held, 100*quiet, 100*busy)
			if ended < 800 {
				t.Errorf("%d ended in ten seconds, want 1000", ended)
			}
			if quiet > 0.01 && !raceEnabled {
				t.Errorf("the reaper uses %.2f%% of a processor with nothing to do", 100*quiet)
			}
		})
	}
}

func TestFigureStartWithManyLocks(t *testing.T) {
	figure(t)
	const n = 100_000
	for _, tc := range []struct {
		name, tables string
		memory       bool          // the served tree and the state are in a file system in memory
		limit        time.Duration // 0: none
	}{
		{"directories=false", volatile, false, 2 * time.Second},
		{"directories=true", "[locks]\ndurable = false\n", false, 0},
		{"directories=true in memory", "[locks]\ndurable = false\n", true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t, tc.tables+hour)
			if tc.memory {
				dir, err := os.MkdirTemp("/dev/shm", "ftplockd-")
				if err != nil {
					t.Skip("no file system in memory: ", err)
				}
				t.Cleanup(func() {
					s.kill() // before its directories go
					os.RemoveAll(dir)
				})
				s.root, s.state = filepath.Join(dir, "files"), filepath.Join(dir, "state")
				s.configure(tc.tables + hour)
			}
			s.start()
			begun := time.Now()
			s.take(t, "/locks/", n)
			t.Logf("%d locks taken in %v", n, time.Since(begun).Round(time.Millisecond))
			for _, end := range []struct {
				name string
				do   func()
			}{{"SIGKILL", s.kill}, {"a stop", s.stop}} {
				end.do()
				begun := time.Now()
				s.start()
				listens, processor := time.Since(begun), processorTime(t, s.cmd.Process.Pid)
				s.session("other").want(550, fmt.Sprintf("MKD /locks/%d", n-1), "held by "+account)
				t.Logf("after %s: listens %v after its start, of processor time %v, with %d locks held", end.name,
					listens.Round(time.Millisecond), processor.Round(time.Millisecond), len(s.locks()))
				if tc.limit > 0 {
					within(t, "start after "+end.name, listens, tc.limit)
				}
			}
		})
	}
}
