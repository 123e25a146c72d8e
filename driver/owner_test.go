package driver

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// busyMachine is one on which there is no other way to know that a client lives.
func busyMachine(o *setup) {
	o.running = (&machine{tasks: []int{2}}).running
}

// client is the only session's client's end.
func (s *server) client() ends {
	s.t.Helper()
	e, ok := clientEnds(s.onlySession().conn)
	if !ok {
		s.t.Fatal("the client is not of this machine")
	}
	return e
}

// found searches once.
func (s *server) found(e ends) map[ends]*owner {
	all := make(map[ends]*owner)
	findOwners([]ends{e}, s.driver.neighbours(), func(found map[ends]*owner) { maps.Copy(all, found) })
	return all
}

// ownerOf searches until it finds the owner of a connection.
func (s *server) ownerOf(e ends) (found *owner) {
	s.t.Helper()
	s.until("the owner is found", func() bool {
		found = s.found(e)[e]
		return found != nil
	})
	return found
}

// sleeper is the owner of a program that was seen to wait at its first stop, and has come to its second one.
func (s *server) sleeper(steps string) *owner {
	s.t.Helper()
	p := s.program(steps)
	p.stopped()
	o := s.ownerOf(s.client())
	s.t.Cleanup(o.close)
	s.until("it sleeps", func() bool { return o.look() == waits })
	p.goOn()
	p.stopped()
	return o
}

// knows has the server know the owner of the only session, of which nothing was known so many times in a row.
func (s *server) knows(misses int) {
	s.t.Helper()
	e := s.client()
	found := s.ownerOf(e)
	found.misses = misses
	s.driver.owners.mu.Lock()
	defer s.driver.owners.mu.Unlock()
	s.driver.owners.of = map[ends]*candidate{e: {owner: found}}
}

func TestAClientThatWaitsForItsReplyIsNotWaitedFor(t *testing.T) {
	const within = 300 * time.Millisecond
	s := start(t, busyMachine, func(o *setup) { o.delays.hangUp = within })
	p := s.program("stop,half /f,close,done,stop")
	p.stopped()
	s.knows(0)
	own := s.onlySession()
	h := s.driver.hangUps()
	s.until("it is not waited for", func() bool {
		began := time.Now()
		if h.gone(own.conn, began, false) {
			t.Fatal("it is taken to be gone")
		}
		return time.Since(began) < within
	})
	p.goOn()
	p.stopped()
	s.wantContent("/f", "half of it")
}

// Whatever a client does between the ends of its connections, it does not wait for its reply. Some take long, as Python does after an
// exception.
func TestAClientThatEndsItsConnectionsItself(t *testing.T) {
	for name, within := range map[string]time.Duration{"it is given time": patience, "it is watched": time.Nanosecond} {
		t.Run(name, func(t *testing.T) {
			s := start(t, busyMachine, func(o *setup) { o.delays.hangUp = within })
			s.write("/f", "old")
			p := s.program("stop,half /f,close,spin 45ms,hangup,stop")
			p.stopped()
			s.knows(0)
			p.goOn()
			p.stopped()
			s.alone()
			s.wantContent("/f", "old")
		})
	}
}

// Most sessions have one upload: their owner is looked for while it waits.
func TestAClientThatFailsInItsFirstUpload(t *testing.T) {
	s := start(t, busyMachine, func(o *setup) { o.delays.hangUp = time.Nanosecond })
	s.write("/f", "old")
	p := s.program("stop,half /f,close,spin 45ms,hangup,stop")
	p.stopped()
	p.goOn()
	p.stopped()
	s.alone()
	s.wantContent("/f", "old")
}

// A client may wait for the reply to an ABOR.
func TestAClientThatAbortsBehindTheEndOfTheData(t *testing.T) {
	for _, durable := range []bool{true, false} {
		t.Run(strconv.FormatBool(durable), func(t *testing.T) {
			s := start(t, busyMachine, func(o *setup) { o.delays.hangUp = patience })
			s.tree.SetOptions(0o644, durable, time.Hour)
			s.write("/f", "old")
			p := s.program("stop" + strings.Repeat(",half /f,close,spin 1ms,abort,done", 50) + ",stop")
			p.stopped()
			s.knows(0)
			p.goOn()
			p.stopped()
			s.wantContent("/f", "old")
		})
	}
}

// The control connection of a killed client ends long after the data connection, on a machine that is busy, or looks as if it were not.
func TestADyingClientIsWaitedFor(t *testing.T) {
	for name, tasks := range map[string]int{"busy": 2, "calm": 1} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(o *setup) {
				o.running, o.delays.hangUp = (&machine{tasks: []int{tasks}}).running, time.Nanosecond
			})
			c := s.as("phoneacc")
			own := s.onlySession()
			h := s.driver.hangUps()
			e := s.client()
			p := s.program("stop")
			p.stopped()
			dying := s.ownerOf(s.clientBut(e))
			p.kill() // its files are closed
			h.owners.mu.Lock()
			h.owners.of = map[ends]*candidate{e: {owner: dying}}
			h.owners.mu.Unlock()
			time.AfterFunc(50*time.Millisecond, func() { c.tcp.Close() })
			if !h.gone(own.conn, time.Now(), false) {
				t.Error("it is taken to live")
			}
		})
	}
}

// clientBut is the client's end of the other one of two sessions.
func (s *server) clientBut(other ends) (found ends) {
	for _, e := range s.driver.neighbours() {
		if e != other {
			found = e
		}
	}
	return found
}

func TestKilledProcessesPublishNothing(t *testing.T) {
	s := start(t, busyMachine, func(o *setup) { o.delays.hangUp = time.Nanosecond })
	s.write("/f", "old")
	for range 10 {
		p := s.program("stop,half /f,kill")
		p.stopped()
		s.knows(0)
		p.goOn()
		s.alone()
		s.wantContent("/f", "old")
		p.kill()
	}
}

func TestAClientThatHandsItsConnectionOnIsServed(t *testing.T) {
	for name, steps := range map[string]string{
		"before the upload ends": "stop,half /f,move,close,stop",
		"for another file":       "stop,half /f,replace,close,stop",
		"while it is waited for": "stop,half /f,close,spin 10ms,move,stop",
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, busyMachine, func(o *setup) { o.delays.hangUp = 100 * time.Millisecond })
			p := s.program(steps)
			p.stopped()
			s.knows(0)
			e := s.client()
			p.goOn()
			p.stopped()
			s.until("it is published", func() bool { _, err := os.Stat(filepath.Join(s.root, "f")); return err == nil })
			if s.driver.owners.known(e) != nil {
				t.Error("its owner is still taken for one")
			}
		})
	}
}

func TestProcessesWithManyThreadsAreWatchedOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns turnstile
		for range 2 {
			if !turns.take() {
				t.Fatal("one alone has to wait")
			}
			turns.give()
		}
		turns.take()
		if turns.take() {
			t.Error("two are watched")
		}
		turns.give()
		if turns.take() {
			t.Error("a busy process is watched again at once")
		}
		time.Sleep(busyFor)
		if !turns.take() {
			t.Error("it is never watched again")
		}
	})
}

// Many looks in vain are not gone on with.
func TestAnOwnerThatNeverSleepsIsLost(t *testing.T) {
	s := start(t, busyMachine)
	p := s.program("stop,half /f,close,spin 150ms,done,half /f,close,spin 150ms,done,stop")
	p.stopped()
	s.knows(maxMisses - 2)
	e := s.client()
	p.goOn()
	p.stopped()
	if s.driver.owners.known(e) != nil {
		t.Error("its owner is still taken for one")
	}
}

// A child that sends may be killed before its parent, which waits for it. One that was waited for leaves nothing but its page faults.
func TestNothingIsKnownOfAProcessWithANewChild(t *testing.T) {
	for name, steps := range map[string]string{"that lives": "fork,stop,fork,stop", "that has ended": "stop,child,stop"} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			o := s.sleeper(steps)
			s.until("it sleeps again", func() bool { _, yes := o.asleep(); return yes })
			if seen := o.look(); seen != unknown {
				t.Errorf("seen: %v", seen)
			}
		})
	}
}

// Of a process whose children leave nothing behind nobody could tell that it had one.
func TestAProcessThatIgnoresItsChildrenIsNoOwner(t *testing.T) {
	s := start(t)
	p := s.program("stop,ignore children,stop")
	p.stopped()
	e := s.client()
	s.ownerOf(e).close()
	p.goOn()
	p.stopped()
	for range 20 {
		if found := s.found(e); len(found) != 0 {
			t.Fatal("found")
		}
	}
}

// One that works on with other threads may do so for another session.
func TestAProcessWithOneSessionIsWatchedForLonger(t *testing.T) {
	for what, long := range map[string]bool{"a file": true, "another session": false} {
		t.Run(what, func(t *testing.T) {
			s := start(t)
			p := s.program("stop,hold " + what + ",work,stop")
			p.stopped()
			e := s.client()
			p.goOn()
			p.stopped()
			o := s.ownerOf(e)
			defer o.close()
			began := time.Now()
			if seen := o.watch(new(turnstile)); seen != unknown {
				t.Errorf("seen: %v", seen)
			}
			if took := time.Since(began); took > watchLong/2 != long {
				t.Errorf("it was watched for %v", took)
			}
		})
	}
}

// On a crowded machine it takes long to end, but no more of a processor.
func TestHowLongAProcessIsWatched(t *testing.T) {
	const ms = time.Millisecond
	one, more := []string{"1"}, []string{"1", "2"}
	for _, tt := range []struct {
		name        string
		threads     []string
		lone        bool
		spent, used time.Duration
		want        bool
	}{
		{"it waits for a processor", one, true, watchStarved, watchLong, true},
		{"it has other sessions, too", one, false, watchStarved, watchLong, true},
		{"for too long", one, true, watchStarved + ms, 0, false},
		{"it has had its time", one, true, 2 * watchLong, watchLong + ms, false},
		{"it has more threads", more, true, watchLong, 2 * watchLong, true},
		{"for too long with more threads", more, true, watchLong + ms, 0, false},
		{"more threads and more sessions", more, false, ms, 0, false},
	} {
		o := owner{threads: tt.threads, lone: tt.lone, used: time.Second + tt.used}
		if got := o.mayBeDying(tt.spent, time.Second); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestWhatAThreadHasHadOfAProcessor(t *testing.T) {
	dir, err := unix.Open("/proc/self", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	o := owner{dir: dir}
	defer o.close()
	const most = 100 * time.Millisecond
	before, ok := o.stat(strconv.Itoa(unix.Gettid()))
	for had := threadTime() + most; threadTime() < had; {
	}
	after, also := o.stat(strconv.Itoa(unix.Gettid()))
	if got := after.used - before.used; !ok || !also || got < most-3*clockTick || got > most+3*clockTick {
		t.Errorf("%v, want about %v", got, most)
	}
}

// Threads that have come since the last look are looked at, too. Those of before have no room for what the new ones do.
func TestNothingIsKnownOfAProcessWithANewThreadThatWorks(t *testing.T) {
	s := start(t)
	o := s.sleeper("stop,threads 20,work,stop")
	for range 50 {
		if seen := o.look(); seen != unknown {
			t.Fatalf("seen: %v", seen)
		}
		nap(time.Millisecond)
	}
}

func TestAProcessWithOtherThreadsIsSeenToSleep(t *testing.T) {
	s := start(t)
	o := s.sleeper("threads 5,stop,swap,stop")
	s.until("it sleeps again", func() bool { return o.look() == waits })
	if got := len(o.open); got > maxOpen {
		t.Errorf("%d files are kept open", got)
	}
}

// What lives on when a client of its own has died is no client's process.
func TestARelayIsNoOwner(t *testing.T) {
	for what, want := range map[string]bool{
		"nothing else": true, "a file": true, "another session": true,
		"many files": false, "a child with the connection": false,
		"a listener": false, "a client": false, "a local socket": false, "a pipe": false, "a terminal's other end": false,
	} {
		t.Run(what, func(t *testing.T) {
			s := start(t)
			p := s.program("half /f,close,done,hold " + what + ",stop")
			p.stopped()
			var e ends
			s.until("its session", func() bool { // another one may be about to begin
				for session := range s.sessionsNow() {
					session.mu.Lock()
					if session.client != nil {
						e, _ = clientEnds(session.conn)
					}
					session.mu.Unlock()
				}
				return len(s.sessionsNow()) == 1 && what != "another session" || len(s.sessionsNow()) == 2
			})
			found := s.found(e)
			if (found[e] != nil) != want {
				t.Errorf("found: %v, want %v", found[e] != nil, want)
			}
			for _, o := range found {
				o.close()
			}
		})
	}
}

func (s *server) sessionsNow() map[*session]struct{} {
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	all := make(map[*session]struct{})
	for session := range s.driver.sessions {
		all[session] = struct{}{}
	}
	return all
}

// A client of the server's own process has no owner.
func TestTheServerIsNoOwner(t *testing.T) {
	s := start(t)
	s.as("phoneacc")
	if found := s.found(s.client()); len(found) != 0 {
		t.Error("found")
	}
}

// On a calm machine a session does not have to wait, but its owner is quicker to be asked than the machine.
func TestSessionsWithManyUploadsGetTheirOwnerOnACalmMachine(t *testing.T) {
	s := start(t, func(o *setup) { o.running = (&machine{tasks: []int{1}}).running })
	s.program("half /f,close,done,half /f,close,done,half /f,close,done,stop").stopped()
	e := s.client()
	s.until("the owner is known", func() bool { return s.driver.owners.known(e) != nil })
}

// The server looks for owners itself, and what it keeps of a session goes with it.
func TestSessionsThatWaitGetTheirOwner(t *testing.T) {
	s := start(t, busyMachine)
	p := s.program("half /f,close,done,half /f,close,done,half /f,close,done,stop,half /f,close,done,stop")
	p.stopped()
	e := s.client()
	s.until("the owner is known", func() bool { return s.driver.owners.known(e) != nil })
	kept := "/proc/self/fd/" + strconv.Itoa(s.driver.owners.known(e).dir)
	before, err := os.Readlink(kept)
	if err != nil {
		t.Fatal(err)
	}
	p.goOn()
	p.stopped()
	p.kill()
	s.until("the session has ended", func() bool { return len(s.sessionsNow()) == 0 })
	if after, err := os.Readlink(kept); err == nil && strings.HasPrefix(after, before) { // "(deleted)" behind it
		t.Error("the process's directory is still open")
	}
	s.driver.owners.mu.Lock()
	left := len(s.driver.owners.of)
	s.driver.owners.mu.Unlock()
	if left != 0 {
		t.Errorf("%d sessions are kept", left)
	}
}

func TestAServerThatIsClosedLooksForNobody(t *testing.T) {
	var s *server
	t.Cleanup(func() { // after the server's own
		s.driver.owners.mu.Lock()
		defer s.driver.owners.mu.Unlock()
		if !s.driver.owners.closed {
			t.Error("it does")
		}
	})
	s = start(t)
}

// seeker is owners whose searches find nobody.
type seeker struct {
	owners
	takes    time.Duration
	searches [][]ends // for whom
	at       []time.Time
}

func newSeeker() *seeker {
	s := &seeker{takes: 4 * time.Millisecond}
	s.sessions, s.stop = func() []ends { return nil }, make(chan struct{})
	s.search = func(wanted, _ []ends, _ func(map[ends]*owner)) time.Duration {
		s.searches, s.at = append(s.searches, wanted), append(s.at, time.Now())
		time.Sleep(s.takes)
		return s.takes
	}
	return s
}

// numbered is a client.
func numbered(n int) ends { return ends{local: netip.AddrPortFrom(netip.Addr{}, uint16(n))} }

// after says how long that takes.
func after(searched <-chan struct{}) time.Duration {
	began := time.Now()
	<-searched
	return time.Since(began)
}

func TestOwnersAreLookedForOneSearchAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeeker()
		defer s.close()
		first := s.waited(numbered(1))
		if got := after(first); got != s.takes {
			t.Errorf("the first search was over after %v", got)
		}
		second, third := s.waited(numbered(2)), s.waited(numbered(3))
		if second != third {
			t.Error("two are looked for separately")
		}
		if got, want := after(second), searchShare*s.takes; got != want {
			t.Errorf("the second search was over after %v, want %v", got, want)
		}
		if len(s.searches) != 2 || len(s.searches[1]) != 2 {
			t.Errorf("searches: %v", s.searches)
		}
		s.waited(numbered(4))
		time.Sleep((searchShare-1)*s.takes + s.takes/2)
		if got := after(s.waited(numbered(5))); got != searchShare*s.takes+s.takes/2 || len(s.searches[3]) != 1 {
			t.Errorf("one that came during a search was looked for after %v, in %v", got, s.searches)
		}
	})
}

// A client may keep what is in the way of its being found until it is told that its upload is over.
func TestOnlyTheFirstPassOfASearchIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeeker()
		defer s.close()
		s.search = func(_, _ []ends, found func(map[ends]*owner)) time.Duration {
			for range passes {
				time.Sleep(time.Millisecond)
				found(nil)
			}
			return 0
		}
		if got := after(s.waited(numbered(1))); got != time.Millisecond {
			t.Errorf("it was over after %v", got)
		}
	})
}

// An upload does not wait for a search that takes long, but the next one may know.
func TestNobodyWaitsForALongSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeeker()
		s.takes = searchWithin/searchShare + time.Millisecond
		<-s.waited(numbered(1))
		if s.waited(numbered(2)) != nil {
			t.Error("it is waited for")
		}
		time.Sleep(searchShare * s.takes)
		synctest.Wait()
		if len(s.searches) != 2 {
			t.Errorf("searches: %v", s.searches)
		}
		s.waited(numbered(3))
		s.close() // does not wait until it is time
		if len(s.searches) != 2 || s.waited(numbered(4)) != nil {
			t.Errorf("after the end there is a search")
		}
	})
}

// On a calm machine nobody has to wait, but a look at the process is quicker.
func TestOwnersOfThoseThatNeedNotWaitAreLookedForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeeker()
		defer s.close()
		for range enoughLooks {
			s.looked(numbered(1))
			s.looked(numbered(2))
		}
		synctest.Wait()
		if len(s.searches) > 0 {
			t.Errorf("searches for those that may have no other upload: %v", s.searches)
		}
		s.looked(numbered(1))
		synctest.Wait()
		if len(s.searches) != 1 {
			t.Errorf("searches: %v", s.searches)
		}
	})
}

func TestAfterEachSearchInVainTheNextIsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSeeker()
		defer s.close()
		for range 160 {
			s.waited(numbered(1))
			time.Sleep(firstBackoff / 10)
		}
		for i := 1; i < len(s.at); i++ {
			if gap, want := s.at[i].Sub(s.at[i-1]), firstBackoff<<(i-1); gap < want || gap > want+firstBackoff/5 {
				t.Errorf("search %d came after %v, want %v", i, gap, want)
			}
		}
		if len(s.at) < 4 {
			t.Errorf("%d searches", len(s.at))
		}
		s.forget(numbered(1))
		if len(s.of) != 0 {
			t.Error("sessions that ended are kept")
		}
	})
}

// A session may end while its owner is looked for.
func TestAnOwnerFoundTooLateIsClosed(t *testing.T) {
	s := start(t)
	p := s.program("stop")
	p.stopped()
	e := s.client()
	found := s.ownerOf(e)
	search, ready := make(chan struct{}), make(chan struct{})
	o := owners{sessions: s.driver.neighbours}
	o.search = func(_, _ []ends, hand func(map[ends]*owner)) time.Duration {
		close(ready)
		<-search
		hand(map[ends]*owner{e: found})
		return 0
	}
	o.waited(e)
	<-ready
	o.forget(e)
	close(search)
	o.close()
	if _, ok := found.read("stat"); ok {
		t.Error("it is open")
	}
}

func TestWhatNobodyCanSpeakThroughIsHarmless(t *testing.T) {
	self, err := unix.Open("/proc/self", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(self)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(name string) *os.File {
		f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for _, tt := range []struct {
		name    string
		file    *os.File
		own     bool
		holders int
		blind   bool
		want    bool
	}{
		{"a pipe that is read, and somebody else has", r, false, 2, false, false},
		{"one that nobody else has", r, false, 1, false, true},
		{"one that perhaps nobody else has", r, false, 1, true, false},
		{"one that the server has", r, true, 2, true, true},
		{"a pipe that is written to", w, false, 2, true, true},
		{"a named pipe", open(fifo), true, 1, false, false},
		{"/dev/null", open("/dev/null"), false, 0, true, true},
		{"a terminal's other end", open("/dev/ptmx"), false, 0, false, false},
	} {
		fd := "fd/" + strconv.Itoa(int(tt.file.Fd()))
		link, err := os.Readlink("/proc/self/" + fd)
		if err != nil {
			t.Fatal(err)
		}
		s := survey{own: map[string]bool{link: tt.own}, holders: map[string]int{link: tt.holders}, blind: tt.blind}
		if got := s.harmless(self, fd, link); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	s := survey{}
	for link, want := range map[string]bool{"anon_inode:[eventpoll]": true, "anon_inode:[io_uring]": false, "socket:[1]": false} {
		if got := s.harmless(self, "fd/0", link); got != want {
			t.Errorf("%s: %v", link, got)
		}
	}
	for device, want := range map[uint64]bool{
		unix.Mkdev(1, 3): true, unix.Mkdev(1, 1): false, unix.Mkdev(136, 0): true, unix.Mkdev(143, 5): true, unix.Mkdev(144, 0): false,
		unix.Mkdev(4, 64): false, unix.Mkdev(5, 2): false, unix.Mkdev(10, 200): false,
	} {
		if got := harmlessDevice(device); got != want {
			t.Errorf("device %#x: %v", device, got)
		}
	}
}
