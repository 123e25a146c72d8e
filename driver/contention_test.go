package driver_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/driver"
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/hostdir"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
	"github.com/ftplockd/ftplockd/reaper"
)

// soon is for what is expected to happen at once; a test that waits so long has failed.
const soon = 20 * time.Second

// everybody may log in; who is called reader... may only read.
type everybody struct{}

func (everybody) Authenticate(_ context.Context, t driver.Attempt) (driver.Account, error) {
	a := driver.Account{Name: t.Name, Home: "/", Start: "/", Read: true, Write: !strings.HasPrefix(t.Name, "reader"), Admin: t.Name == "admin"}
	if t.Name == "bob" {
		a.Home = "/locks"
	}
	return a, nil
}

// contested is a server with its reaper, on loopback and a real disk.
type contested struct {
	t     testing.TB
	root  string
	addr  string
	table *lock.Table
	clock *locktest.FakeClock // goes with the time, and faster if told
}

// contend runs a server until the test ends.
func contend(t testing.TB, directories bool, rules ...lock.Rule) *contested {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &contested{t: t, root: t.TempDir(), clock: locktest.NewRunningClock()}
	state, clock := t.TempDir(), s.clock
	tree, err := files.Open(s.root, files.Options{State: filepath.Join(state, "uploads")})
	must(err)
	compiled, err := lock.NewRules(rules)
	must(err)
	for _, p := range append(compiled.Prefixes(), "/plain") {
		must(tree.MkdirAll(string(p), 0o755))
	}
	store, err := journal.Open(journal.Options{Dir: filepath.Join(state, "journal"), Clock: clock})
	must(err)
	insides, err := driver.OpenInsides(tree, filepath.Join(state, "inside"), nil)
	must(err)
	t.Cleanup(func() { insides.Close() })
	kept := insides.Store(store)
	if directories {
		kept, err = hostdir.Open(context.Background(), hostdir.Options{Inner: store, FS: tree, Clock: clock, Rules: compiled})
		must(err)
	}
	s.table, err = lock.NewTable(context.Background(), lock.Options{Store: kept, Clock: clock, Rules: compiled, Generation: store.Generation()})
	must(err)
	d := driver.New(driver.Options{
		Tree: tree, Table: s.table, Clock: clock, Insides: insides, Directories: directories,
		Settings: driver.Settings{Accounts: everybody{}, Active: true, DataTimeout: soon, StatusFile: "/.locks.json"},
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	s.addr = l.Addr().String()
	conns := d.Control(control.Options{})
	listener := conns.Listen(l, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = d.Serve(listener) })
	running.Go(func() { _ = (&reaper.Reaper{Table: s.table}).Run(ctx) })
	t.Cleanup(func() {
		must(conns.Shutdown(control.Reply{Code: 421, Text: "the test is over"}))
		wait, stop := context.WithTimeout(context.Background(), soon)
		defer stop()
		must(conns.Wait(wait))
		cancel()
		running.Wait()
		d.Close()
		must(store.Close())
		must(tree.Close())
	})
	return s
}

// contender is a client.
type contender struct {
	t    testing.TB
	name string
	conn net.Conn
	in   *bufio.Reader
}

func (s *contested) as(name string) *contender {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	c := &contender{t: s.t, name: name, conn: conn, in: bufio.NewReader(conn)}
	c.reads("220 *")
	c.says("USER "+name, "331 *")
	c.says("PASS x", "230 *")
	return c
}

func (c *contender) send(line string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(line + "\r\n")); err != nil {
		c.t.Fatal(err)
	}
}

// line reads a line.
func (c *contender) line() string {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(soon))
	line, err := c.in.ReadString('\n')
	if err != nil {
		c.t.Fatalf("%s: %v", c.name, err)
	}
	return strings.TrimRight(line, "\r\n")
}

// reads reads a line that must fit the pattern, where * is anything.
func (c *contender) reads(pattern string) {
	c.t.Helper()
	fits := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
	if line := c.line(); !fits.MatchString(line) {
		c.t.Fatalf("%s: got %q, want %q", c.name, line, pattern)
	}
}

func (c *contender) says(line, pattern string) {
	c.t.Helper()
	c.send(line)
	c.reads(pattern)
}

// await returns once so many are in the queue for the lock.
func (s *contested) await(n lock.Name, waiting int) {
	s.t.Helper()
	for until := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		if status, _ := s.table.Get(n); status.Waiting == waiting {
			return
		} else if time.Now().After(until) {
			s.t.Fatalf("%d are in the queue, want %d", status.Waiting, waiting)
		}
	}
}

func (s *contested) directory(n string) bool {
	info, err := os.Stat(filepath.Join(s.root, n))
	return err == nil && info.IsDir()
}

func rule(c lock.Contention) lock.Rule {
	return lock.Rule{Match: "/locks/**", MaxAge: 10 * time.Minute, Contention: &c}
}

var patient = lock.Contention{Wait: time.Minute, Queue: lock.QueueFair, QueueHold: 15 * time.Second, ReadersShare: true}

func TestMkdWaitsForItsTurn(t *testing.T) {
	for _, directories := range []bool{true, false} {
		t.Run(fmt.Sprint("directories ", directories), func(t *testing.T) {
			s := contend(t, directories, rule(patient))
			a, b, c := s.as("a"), s.as("b"), s.as("c")
			a.says("MKD /locks/x", `257 "/locks/x" locked, token *`)
			b.send("MKD /locks/x")
			s.await("/locks/x", 1)
			c.send("MKD /locks/x")
			s.await("/locks/x", 2)
			a.says("RMD /locks/x", "250 *")
			b.reads(`257 "/locks/x" locked, token *, expires in 10m0s`)
			if directories != s.directory("locks/x") {
				t.Error("the directory is not as it should be")
			}
			b.says("RMD /locks/x", "250 *")
			c.reads(`257 "/locks/x" locked, *`)
			c.says("RMD /locks/x", "250 *")
		})
	}
}

func TestWhatEndsTheWaitingOfMkd(t *testing.T) {
	s := contend(t, true, rule(patient))
	a, last := s.as("a"), s.as("last")
	a.says("MKD /locks/x", "257 *")
	for _, test := range []struct {
		name string
		end  func(c *contender)
	}{
		{"the client hangs up", func(c *contender) { _ = c.conn.Close() }},
		{"the client is reset", func(c *contender) {
			raw, _ := c.conn.(*net.TCPConn).SyscallConn()
			_ = raw.Control(func(fd uintptr) {
				_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
			})
			_ = c.conn.Close()
		}},
		{"another command", func(c *contender) {
			c.send("NOOP")
			c.reads("550 /locks/x: not waited for any longer")
			c.reads("200 *")
		}},
		{"quit", func(c *contender) {
			c.send("QUIT")
			c.reads("550 *")
			c.reads("221 *")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := s.as("c")
			c.t = t
			c.send("MKD /locks/x")
			s.await("/locks/x", 1)
			test.end(c)
			s.await("/locks/x", 0)
		})
	}
	last.send("MKD /locks/x")
	s.await("/locks/x", 1)
	a.says("RMD /locks/x", "250 *")
	last.reads("257 *")
}

func TestMkdWaitsSoLongOnly(t *testing.T) {
	s := contend(t, true, rule(lock.Contention{Queue: lock.QueueFair, QueueHold: 15 * time.Second}))
	a, b := s.as("a"), s.as("b")
	a.says("MKD /locks/x", "257 *")
	b.says("SITE WAIT x", "501 *")
	b.says("SITE WAIT 1", "200 this session waits for a lock up to 1s")
	b.says("MKD /locks/x", "550 /locks/x: waited 1s: held by a@127.0.0.1 for *, expires in *; place 1 of 1 in the queue")
	b.says("SITE WAIT 0", "200 *")
	b.says("MKD /locks/x", "550 /locks/x: held by a@127.0.0.1 for *, expires in *; place 1 of 1 in the queue")
}

func TestPollersHaveTheirPlace(t *testing.T) {
	s := contend(t, true, rule(lock.Contention{Queue: lock.QueueFair, QueueHold: 15 * time.Second}))
	a, b, newcomer := s.as("a"), s.as("b"), s.as("newcomer")
	a.says("MKD /locks/x", "257 *")
	b.says("MKD /locks/x", "550 /locks/x: held by a@127.0.0.1 for *, expires in *")
	b.says("MKD /locks/x", "550 *; place 1 of 1 in the queue")
	newcomer.says("SITE LOCKS", "211-1 locks are held:")
	newcomer.reads(" /locks/x: held by a@*; 1 in the queue")
	newcomer.reads("211 *")
}

func TestReadersHoldALockTogether(t *testing.T) {
	s := contend(t, true, rule(patient))
	one, two, writer := s.as("reader1"), s.as("reader2"), s.as("w")
	one.says("MKD /locks/x", "257 *")
	two.says("MKD /locks/x", "257 *")
	writer.send("MKD /locks/x")
	s.await("/locks/x", 1)
	one.says("RMD /locks/x", "250 *")
	if !s.directory("locks/x") {
		t.Error("the directory is gone while a reader holds it")
	}
	two.says("SITE LOCK INFO /locks/x", "211-*")
	two.reads(" shared by reader2@127.0.0.1 *")
	two.reads(" 1 in the queue")
	two.reads("211 *")
	two.says("RMD /locks/x", "250 *")
	writer.reads("257 *")
	two.says("SITE WAIT 0", "200 *")
	two.says("MKD /locks/x", "550 /locks/x: held by w@*")
}

func TestLimitOfLocksInOneDirectory(t *testing.T) {
	s := contend(t, true, rule(lock.Contention{Limit: 2, Wait: time.Minute}))
	a, b := s.as("a"), s.as("b")
	a.says("MKD /locks/1", "257 *")
	a.says("MKD /locks/2", "257 *")
	b.says("SITE WAIT 0", "200 *")
	b.says("MKD /locks/3", "550 /locks/3: there may be 2 such locks, and so many are held")
	b.says("SITE WAIT 60", "200 *")
	b.send("MKD /locks/3")
	s.await("/locks/1", 1)
	a.says("RMD /locks/1", "250 *")
	b.reads(`257 "/locks/3" *`)
}

func TestADeadlockIsNamed(t *testing.T) {
	s := contend(t, true, rule(patient))
	a, b := s.as("a"), s.as("bob") // whose / is /locks
	a.says("MKD /locks/1", "257 *")
	b.says("MKD /2", "257 *")
	a.send("MKD /locks/2")
	s.await("/locks/2", 1)
	b.says("MKD /1", "550 /1: deadlock: /1 is held by a@127.0.0.1, who waits for /2, which is yours")
	b.says("RMD /2", "250 *")
	a.reads("257 *")
}

func TestRmdOfAGroupWaitsForItsMembers(t *testing.T) {
	s := contend(t, true, rule(lock.Contention{Members: lock.MembersAnyone}))
	a, b := s.as("a"), s.as("b")
	a.says("MKD /locks/g", "257 *")
	b.says("MKD /locks/g/1", "257 *")
	a.says("RMD /locks/g", "550 /locks/g: there are locks below it")
	a.says("SITE WAIT 60", "200 *")
	a.send("RMD /locks/g")
	b.says("SITE LOCK INFO /locks/g/1", "211-*")
	b.reads(" *")
	b.reads("211 *")
	b.says("RMD /locks/g/1", "250 *")
	a.reads("250 /locks/g released")
	if s.directory("locks/g") {
		t.Error("the directory of the group is left")
	}
	a.says("MKD /locks/g", "257 *")
	b.says("MKD /locks/g/1", "257 *")
	a.send("RMD /locks/g\r\nNOOP")
	a.reads("550 /locks/g: not waited for any longer")
	a.reads("200 *")
}

func TestTheHolderMayTakeItAgain(t *testing.T) {
	s := contend(t, true, rule(lock.Contention{Reentrant: true}))
	a, b := s.as("a"), s.as("b")
	a.says("MKD /locks/x", "257 *")
	a.says("MKD /locks/x", "257 *")
	a.says("RMD /locks/x", "250 /locks/x is still held, RMD it 1 more")
	b.says("MKD /locks/x", "550 *")
	a.says("RMD /locks/x", "250 /locks/x released")
	b.says("MKD /locks/x", "257 *")
}

func TestAWaitingMkdIsASignOfLife(t *testing.T) {
	s := contend(t, true, lock.Rule{Match: "/kept/*", Contention: &patient}, lock.Rule{Match: "/locks/*", MaxIdle: 30 * time.Second})
	a, b := s.as("a"), s.as("b")
	a.says("MKD /kept/x", "257 *")
	b.says("MKD /locks/y", "257 *")
	b.send("MKD /kept/x")
	s.await("/kept/x", 1)
	s.clock.Advance(40 * time.Second)
	s.table.Expire(context.Background())
	if _, held := s.table.Get("/locks/y"); !held {
		t.Fatal("the lock of the session that waits was taken for idle")
	}
	a.says("RMD /kept/x", "250 *")
	b.reads("257 *")
	s.clock.Advance(40 * time.Second)
	s.table.Expire(context.Background())
	if _, held := s.table.Get("/locks/y"); held {
		t.Error("the wait is over, and the lock is not taken for idle")
	}
}

func TestNoLockIsGrantedWhereItsDirectoryHasGoneMeanwhile(t *testing.T) {
	s := contend(t, false, lock.Rule{Match: "**/*_lock", Contention: &patient})
	a, b := s.as("a"), s.as("b")
	a.says("MKD /plain/x_lock", "257 *")
	b.send("MKD /plain/x_lock")
	s.await("/plain/x_lock", 1)
	if err := os.Remove(filepath.Join(s.root, "plain")); err != nil {
		t.Fatal(err)
	}
	a.says("RMD /plain/x_lock", "250 *")
	b.reads("550 /plain/x_lock: no such directory to make it in")
	if _, held := s.table.Get("/plain/x_lock"); held {
		t.Error("it is held")
	}
}

// TestHandOver measures what lies between the RMD and the 257 of the next of 16 that wait.
func TestHandOver(t *testing.T) {
	for _, directories := range []bool{true, false} {
		s := contend(t, directories, rule(patient))
		const waiters, rounds = 16, 20
		holder := s.as("holder")
		holder.says("MKD /locks/x", "257 *")
		queue := make([]*contender, waiters)
		for i := range queue {
			queue[i] = s.as(fmt.Sprint("w", i))
			queue[i].send("MKD /locks/x")
			s.await("/locks/x", i+1)
		}
		var all []time.Duration
		for i := range waiters * rounds {
			next := queue[i%waiters]
			began := time.Now()
			holder.send("RMD /locks/x")
			next.reads("257 *")
			all = append(all, time.Since(began))
			holder.reads("250 *")
			holder.send("MKD /locks/x") // at the end again
			s.await("/locks/x", waiters)
			queue[i%waiters], holder = holder, next
		}
		slices.Sort(all)
		t.Logf("directories %v: p50 %v, p99 %v", directories, all[len(all)/2], all[len(all)*99/100])
		if all[len(all)/2] > 50*time.Millisecond {
			t.Errorf("half of the hand-overs took longer than %v", all[len(all)/2])
		}
	}
}

// TestWaitersCostNothing has many wait, and looks what that costs.
func TestWaitersCostNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("opens many connections")
	}
	const waiters, watch = 1000, 2 * time.Second
	s := contend(t, false, rule(patient))
	holder := s.as("holder")
	holder.says("MKD /locks/x", "257 *")
	queue := make([]*contender, waiters)
	for i := range queue {
		queue[i] = s.as("w")
	}
	idle := processor(watch)
	for i := range queue {
		queue[i].send("MKD /locks/x")
	}
	s.await("/locks/x", waiters)
	waiting := processor(watch)
	t.Logf("in %v: %v with %d idle connections, %v when they wait", watch, idle, waiters, waiting)
	if waiting > idle+watch/10 {
		t.Errorf("those that wait took %v of processor time, idle ones %v", waiting, idle)
	}
}

// processor says how much processor time the process takes in that time.
func processor(d time.Duration) time.Duration {
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	time.Sleep(d)
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	return time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
}
