package integration

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

var soak = flag.Duration("soak", 4*time.Second, "how long TestSoak keeps the server under load; 30m before a release")

// soakRules: everything that is left behind is over after two seconds.
const soakRules = `
[ftp]
data_timeout = "2s"
[[lock]]
match = "/locks/wanted"
max_age = "2s"
on_disconnect = "release"
[[lock]]
match = "/count*_lock"
max_age = "2s"
protects = ["/count$1.tsv"]
wait = "1s"
[[lock]]
match = "/locks/**"
max_age = "2s"
`

// Mixed load with faults, for as long as one likes: clients that die, stand still, are cut off and thrown out, locks that are
// broken, reloads, and a server that is killed and started again. When it is over nothing is left: no goroutine, descriptor,
// memory, temporary file or lock, and the journal and the disk agree.
func TestSoak(t *testing.T) {
	t.Parallel()
	s := startServer(t, soakRules)
	s.dumps = true
	if err := os.Mkdir(s.path("pub"), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	k := newSoaker(time.Now().Add(*soak), s.v4)
	var clients, chaos sync.WaitGroup
	seed := uint64(time.Now().UnixNano())
	for name := range soakWork {
		for i := range uint64(count(2, 6)) {
			clients.Go(func() { k.work(name, seed+i) })
		}
	}
	chaos.Go(func() { k.disturb(s, *soak) })
	clients.Wait()
	chaos.Wait()

	for _, wrong := range k.wrong[:min(len(k.wrong), 20)] {
		t.Error(wrong)
	}
	k.rest(t, s)
	k.report(t)
}

// disturb breaks, throws out, reloads, and in the first half of the time kills the server now and then: in the other half
// one and the same process has to keep what it uses in bounds.
func (k *soaker) disturb(s *server, lasts time.Duration) {
	random := rand.New(rand.NewPCG(uint64(lasts), 2))
	last := time.Now().Add(lasts / 2)
	every := min(lasts/4, 15*time.Second)
	next := time.Now().Add(every)
	for !k.over() {
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		switch random.IntN(4) {
		case 0:
			s.signal(syscall.SIGHUP)
		case 1:
			run(s.t, binary, "break", fmt.Sprintf("/locks/%d", random.IntN(10)), "--reason", "soak", "--state", s.state)
		case 2:
			if ids := s.sessions(account); len(ids) > 0 {
				run(s.t, binary, "kick", ids[random.IntN(len(ids))], "--state", s.state)
			}
		}
		if now := time.Now(); now.After(next) && now.Before(last) {
			k.up.Lock()
			s.kill()
			s.start()
			k.address = s.v4
			k.up.Unlock()
			next = time.Now().Add(every)
		}
	}
}

// rest waits until all that was left behind is over, and looks what remains.
func (k *soaker) rest(t *testing.T, s *server) {
	harness.Await(t, "all sessions end", func() bool { return len(s.sessions(account)) == 0 })
	harness.Await(t, "all locks end", func() bool { return len(s.locks()) == 0 })
	harness.Await(t, fmt.Sprint("no upload is left ", s.unfinished()), func() bool { return len(s.unfinished()) == 0 })

	// A server that has done next to nothing is the measure.
	fresh := startServer(t, soakRules)
	fresh.dumps = true
	k.once(t, fresh)
	k.once(t, s)
	was, is := used(t, fresh), used(t, s)
	for until := time.Now().Add(time.Minute); is.descriptors > was.descriptors && time.Now().Before(until); is = used(t, s) {
		time.Sleep(100 * time.Millisecond) // the server may still be closing the last connection
	}
	t.Logf("after the load %v, after one round %v", is, was)
	if is.descriptors > was.descriptors {
		t.Errorf("%d descriptors are open, %d were at first:\n%s", is.descriptors, was.descriptors, strings.Join(is.open, "\n"))
	}
	if grown := is.memory - was.memory; grown > 96<<20 && !harness.RaceEnabled {
		t.Errorf("%d MiB more than at first", grown>>20)
	}
	before, after := goroutines(t, fresh), goroutines(t, s)
	if len(after) > len(before) {
		t.Errorf("%d goroutines run, %d did at first:\n%s", len(after), len(before), strings.Join(after, "\n\n"))
	}
	k.reconcile(t, s)
}

// once does a round of some kinds of work, so that what a server makes when it is first used is there.
func (k *soaker) once(t *testing.T, s *server) {
	t.Helper()
	c := s.session(account)
	c.Want(200, "TYPE I")
	c.Want(257, "MKD /locks/once")
	c.Want(250, "RMD /locks/once")
	c.stores("/once", "once")
	c.Want(250, "DELE /once")
	c.Want(221, "QUIT")
	c.Conn.Close()
	harness.Await(t, "the session ends", func() bool { return len(s.sessions(account)) == 0 })
}

// reconcile starts the server again: journal, disk and what clients were told agree.
func (k *soaker) reconcile(t *testing.T, s *server) {
	complaints := strings.Count(s.log.String(), "level=ERROR")
	s.start()
	if locks := s.locks(); len(locks) > 0 {
		t.Errorf("held after a restart: %v", locks)
	}
	for which, n := range k.counts {
		if got, err := strconv.Atoi(s.read(which + ".tsv")); err != nil || got < n {
			t.Errorf("%s.tsv holds %d (%v), %d was acknowledged", which, got, err, n)
		}
	}
	files, err := filepath.Glob(s.path("pub/file-*"))
	if err != nil || len(files) == 0 {
		t.Errorf("files: %v, %v", files, err)
	}
	for _, file := range files {
		if what, err := os.ReadFile(file); err != nil || !isPatterned(what) {
			t.Errorf("%s is not whole: %v", filepath.Base(file), err)
		}
	}
	if left, _ := filepath.Glob(s.path("locks/*")); len(left) > 0 {
		t.Errorf("left on disk: %v", left)
	}
	c := s.session(account)
	last := uint64(0)
	for told := range k.tokens {
		last = max(last, told)
	}
	if now := harness.Token(c.Want(257, "MKD /locks/last")); now <= last {
		t.Errorf("token %d after %d", now, last)
	}
	c.Want(250, "RMD /locks/last")
	if n := strings.Count(s.log.String(), "level=ERROR"); n > complaints {
		t.Error("the restart complained")
	}
}

func (k *soaker) report(t *testing.T) {
	var done []string
	for name, n := range k.kinds {
		done = append(done, fmt.Sprintf("%s %d", name, n.Load()))
		if n.Load() == 0 && name != "stall" && name != "cut" { // those end their session
			t.Errorf("%s never came to its end", name)
		}
	}
	t.Logf("%v: %s; %d refusals, %d tokens", *soak, strings.Join(done, ", "), k.refused.Load(), len(k.tokens))
}

// usage is what a process has at a moment.
type usage struct {
	descriptors int
	open        []string
	memory      int64 // bytes, PSS
}

func (u usage) String() string {
	return fmt.Sprintf("%d descriptors, %d MiB", u.descriptors, u.memory>>20)
}

func used(t *testing.T, s *server) (u usage) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", s.cmd.Process.Pid)
	entries, err := os.ReadDir(dir + "fd")
	if err != nil {
		t.Fatal(err)
	}
	ends := make(map[string]int)
	for _, e := range entries {
		to, _ := os.Readlink(dir + "fd/" + e.Name())
		u.open = append(u.open, to)
		ends[to]++
	}
	// Pipes with both ends here are those of splice, which Go keeps for the next one until it collects its garbage.
	u.open = slices.DeleteFunc(u.open, func(to string) bool { return strings.HasPrefix(to, "pipe:") && ends[to] == 2 })
	for _, name := range u.open {
		if !strings.Contains(name, "[timerfd]") { // uploads share a few, which the garbage collection closes
			u.descriptors++
		}
	}
	rollup, err := os.ReadFile(dir + "smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(rollup), "\nPss:")
	fields := strings.Fields(rest)
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	u.memory = kib << 10
	return u
}

// goroutines ends the server and returns the stacks that it leaves, but for those of Go's own.
func goroutines(t *testing.T, s *server) (stacks []string) {
	t.Helper()
	before := len(s.log.String())
	s.signal(syscall.SIGQUIT)
	s.waitExit()
	for part := range strings.SplitSeq(s.log.String()[before:], "\n\n") {
		if strings.HasPrefix(part, "goroutine ") && !strings.HasPrefix(part, "goroutine 0 ") && !strings.Contains(part, "\ncreated by runtime.") {
			stacks = append(stacks, part)
		}
	}
	if len(stacks) == 0 {
		t.Error("no goroutine is seen")
	}
	return stacks
}
