package driver

import (
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/control"
)

// hangUps tell killed uploaders from those that wait for their 226. The kernel of a killed process closes its
// connections one after the other, so an upload whose data connection ended may only be published when the control
// connection had its time to end, too.
//
// Of a client on this very machine more is known. If the process that it is was found, that says whether it waits for its reply or
// is being killed, see owner. For all others: while a kernel closes a process's connections the process wants a
// processor. So when nothing on the machine wants one but this server, looked at twice, nobody is being killed; and when very many do, it
// may take one longer. A client that only comes through a relay on this machine looks like one on it then, and what its own
// machine does is not seen.
type hangUps struct {
	within time.Duration // see delays.hangUp and Settings.HangUp
	// running returns how many tasks have or want a processor on this machine, this one included; false: not known.
	running func() (int, bool)
	lookout *lookout
	owners  *owners
}

// lookout says whether it is worth a look how busy the machine is: one at a time, since a second upload that ends meanwhile
// shows that it is, and not for a while after it was found busy. The zero value is ready.
type lookout struct {
	mu        sync.Mutex
	taken     bool
	notBefore time.Time
	tasks     int // how many had or wanted a processor when it was found busy
}

// busyFor is how long a machine that was found busy is taken for busy: looks are a small part of what uploads cost then.
const busyFor = 20 * time.Millisecond

func (l *lookout) take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken || time.Now().Before(l.notBefore) {
		return false
	}
	l.taken = true
	return true
}

// give says what was seen: how many tasks at most.
func (l *lookout) give(calm bool, tasks int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = false
	if !calm {
		l.notBefore, l.tasks = time.Now().Add(busyFor), tasks
	}
}

// On a machine with more tasks for each processor than crowded, a dying process may wait for its next turn with its
// connections half closed: until each of the others had a slice (Linux gives them about 3 ms), 50 ms at most.
const (
	crowded = 3
	slice   = 3 * time.Millisecond
	longest = 50 * time.Millisecond
)

// within is how long a client of this machine may take to hang up, usually and as busy as the machine was found.
func (l *lookout) within(usual time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	processors := runtime.NumCPU()
	if l.tasks <= crowded*processors || !time.Now().Before(l.notBefore) {
		return usual
	}
	return max(usual, min(longest, slice*time.Duration(l.tasks)/time.Duration(processors)))
}

func (s *Server) hangUps() hangUps {
	return hangUps{within: max(s.delays.hangUp, s.settings.Load().HangUp), running: s.running, lookout: &s.lookout, owners: &s.owners}
}

// gone reports whether the client hangs up within the time after the end of its data connection, or has. It does not
// wait if it is proven that the client would have said more, or that it lives.
func (h hangUps) gone(c *control.Conn, ended time.Time, proven bool) bool {
	if proven {
		return c.Gone()
	}
	client, near := clientEnds(c)
	if h.running == nil || !near {
		return goneBy(c, ended.Add(h.within))
	}
	owner := h.owners.known(client)
	if owner != nil {
		switch owner.watch(&h.owners.many) {
		case waits: // what hung up did so before that
			return c.Gone()
		case left:
			return h.dying(c, client, ended)
		}
	}
	if h.lookout.take() {
		calm, tasks := h.calm()
		h.lookout.give(calm, tasks)
		if calm { // as above
			h.owners.looked(client)
			return c.Gone()
		}
	}
	searched := h.owners.waited(client)
	gone := goneBy(c, ended.Add(h.lookout.within(h.within)))
	switch {
	case gone:
		return true
	case owner == nil:
		return h.goneOnceFound(c, client, ended, searched)
	}
	if there, known := owner.holds(); known && !there {
		return h.dying(c, client, ended)
	}
	if owner.misses >= maxMisses {
		h.owners.lose(client)
	}
	return false
}

// An upload waits no longer than that for a search: one takes a millisecond or two, but more on a large machine or a crowded one.
const searchWithin = 200 * time.Millisecond

// goneOnceFound is for the first upload of a session that had to wait, most often its only one: whoever fails by itself in it may take
// longer to hang up than was waited, and is seen if its process is found.
func (h hangUps) goneOnceFound(c *control.Conn, client ends, ended time.Time, searched <-chan struct{}) bool {
	if searched != nil {
		enough := time.NewTimer(searchWithin)
		defer enough.Stop()
		select {
		case <-searched:
		case <-enough.C:
		}
	}
	if owner := h.owners.known(client); owner != nil && owner.watch(&h.owners.many) == left {
		return h.dying(c, client, ended)
	}
	return c.Gone()
}

// goneBy reports whether the client hangs up by then.
func goneBy(c *control.Conn, then time.Time) bool {
	left := time.Until(then)
	if left <= 0 {
		return c.Gone()
	}
	return c.GoneWithin(left)
}

// dying is how long a process that has let go of its control connection is given to hang up with it.
const dying = time.Second

// dying reports whether a client whose process has let go of the connection hangs up. One that does not has handed it on to
// another process, and its owner is of no use.
func (h hangUps) dying(c *control.Conn, client ends, ended time.Time) bool {
	gone := goneBy(c, ended.Add(dying))
	if !gone {
		h.owners.lose(client)
	}
	return gone
}

// How the machine is looked at. The pause is a sleep of the thread: the runtime's timers are as coarse as a millisecond.
const (
	calmTries  = 6
	calmLooks  = 2
	lookPause  = 40 * time.Microsecond
	ownRunning = 1 // this thread
)

// calm reports whether the machine was found with nothing to do on each of so many looks in a row, and how many tasks it
// had at most. It gives up soon: a busy machine is better left alone.
func (h hangUps) calm() (calm bool, tasks int) {
	inARow := 0
	for range calmTries {
		nap(lookPause)
		n, ok := h.running()
		if !ok {
			return false, tasks
		}
		tasks = max(tasks, n)
		if n > ownRunning {
			inARow = 0
			continue
		}
		if inARow++; inARow == calmLooks {
			return true, tasks
		}
	}
	return false, tasks
}

// nap is a sleep of the thread. One that a signal cuts short is as good.
func nap(d time.Duration) {
	pause := unix.NsecToTimespec(d.Nanoseconds())
	_ = unix.Nanosleep(&pause, nil)
}

// here reports whether an address is of this machine and of nothing else: loopback.
func here(a netip.AddrPort) bool { return a.Addr().IsLoopback() }

// runningTasks reads how many tasks have or want a processor: the fourth field of /proc/loadavg, see proc(5). Not from a
// file that only looks like it, as containers may be given one, which is some seconds old.
func runningTasks() (n int, ok bool) {
	fd, err := unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return 0, false
	}
	var text [128]byte
	size, err := unix.Read(fd, text[:])
	if err != nil || size <= 0 {
		return 0, false
	}
	return parseRunning(string(text[:size]))
}

// parseRunning wants at least one: whoever reads it runs.
func parseRunning(loadavg string) (n int, ok bool) {
	fields := strings.Fields(loadavg)
	if len(fields) < 4 {
		return 0, false
	}
	running, _, ok := strings.Cut(fields[3], "/")
	n, err := strconv.Atoi(running)
	return n, ok && err == nil && n > 0
}
