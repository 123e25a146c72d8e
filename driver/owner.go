package driver

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// owner is the process of this machine that alone holds the client's end of a control connection, and that nothing leads to which
// a client of its own could be behind (see survey). When the data connection of an upload has ended, it shows which of these it is:
//
//   - It sleeps, every thread of it (state S), and holds the connection: it waits for its 226. A process does not sleep in that way
//     while its connections are closed, be it that the kernel does so since it is being killed (it runs, wants to, waits in state
//     D, is a zombie), or that it does itself since something went wrong: Perl's die and exit close the data connection 20 to
//     300 us before the other. A program that waits for something else between the two is taken to wait for its 226.
//   - It does not hold the connection any more: it is being killed, and the end of the control connection is on its way, however long a
//     starved machine takes for that. Linux (exit_files, called by do_exit) takes its files from a task before the last task
//     that shares them closes the first, so what /proc says of its descriptors ends before the data connection does. Or it has
//     handed the connection on to another process.
//   - Else nothing is known: it may not have come to wait yet, or have other things to do.
//
// That it holds the connection says nothing by itself: so does, for some time, Perl when it dies.
//
// It may have forked a child which alone has the data connection, sends, and is killed a moment before it, or ends and is waited for. So
// nothing is known either of a process with other children than when it was found, or that has waited for one since; those of before had
// nothing to do with the connection.
//
// Its session's uploads, which end one after the other, are the only users of an owner.
type owner struct {
	dir  int    // /proc/PID, O_PATH: it means this process, also when the number is given to another
	pid  string // as /proc has it
	fd   string // of the connection: fd/N
	link string // what it is: socket:[inode]

	// What it was when it was found.
	lone     bool   // it had no other session
	children []byte // their numbers
	reaped   string // what it had of children that it had waited for

	misses  int            // how many times in a row nothing was known
	used    time.Duration  // of processors, by its main thread, when it was last looked at
	threads []string       // the numbers of its threads when they were last counted
	open    map[string]int // files of the process that are kept open, by name: to open one takes longer than to read it
}

// sign is what was seen of an owner.
type sign uint8

const (
	unknown sign = iota
	waits        // it holds the connection and sleeps
	left         // it does not hold the connection any more
)

func (o *owner) close() {
	for _, fd := range o.open {
		unix.Close(fd)
	}
	unix.Close(o.dir)
}

// look is for the time after the end of the data connection.
func (o *owner) look() sign {
	reaped, asleep := o.asleep()
	switch there, known := o.holds(); {
	case known && !there:
		return left
	case there && asleep && reaped == o.reaped && o.bereft():
		return waits
	}
	return unknown
}

// How long the client's process is looked at while it comes to wait for the reply, and the longest pause between two looks.
const (
	watchFor  = 600 * time.Microsecond
	longPause = 160 * time.Microsecond
)

// A process with one thread, or with one session, that holds the connection and does not come to wait for its reply may be dying by its own
// hand: Python takes 5 to 40 ms from the exception that ends ftplib's data connection to the end of the other. So long it is looked at,
// now and then. Of one with one thread it is known how much of a processor it has had, which is what counts on a crowded machine.
const (
	watchLong    = 100 * time.Millisecond
	watchStarved = time.Second
	rarely       = 2 * time.Millisecond
)

// mayBeDying reports whether it is worth another look so long after the first, when it had used so much.
func (o *owner) mayBeDying(spent, used time.Duration) bool {
	if len(o.threads) == 1 {
		return spent <= watchStarved && o.used-used <= watchLong
	}
	return o.lone && spent <= watchLong
}

// watch looks until something is known, or for watchFor, or watchLong. Looks at many threads take as much of a processor as the wait that they
// save is worth, so of such processes one at a time is watched.
func (o *owner) watch(many *turnstile) sign {
	if len(o.threads) > 1 {
		if !many.take() {
			return unknown
		}
		defer many.give()
	}
	seen := o.look()
	for began, used, pause := time.Now(), o.used, lookPause; ; pause = min(2*pause, longPause) {
		if seen != unknown {
			o.misses = 0
			return seen
		}
		switch spent := time.Since(began) + pause; {
		case spent <= watchFor:
			nap(pause)
		case o.mayBeDying(spent, used):
			time.Sleep(rarely)
		default:
			o.misses++
			return unknown
		}
		seen = o.look()
	}
}

// turnstile lets one pass at a time, and nobody for busyFor after others wanted to meanwhile. The zero value is ready.
type turnstile struct {
	mu        sync.Mutex
	taken     bool
	wanted    bool // by others while it was taken
	notBefore time.Time
}

func (t *turnstile) take() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = t.taken
	if t.taken || time.Now().Before(t.notBefore) {
		return false
	}
	t.taken = true
	return true
}

func (t *turnstile) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = false
	if t.wanted {
		t.wanted, t.notBefore = false, time.Now().Add(busyFor)
	}
}

// holds reports whether the process has the connection still.
func (o *owner) holds() (there, known bool) {
	var buffer [64]byte
	n, err := unix.Readlinkat(o.dir, o.fd, buffer[:])
	if err != nil {
		return false, unlessGone(err) == nil
	}
	return string(buffer[:n]) == o.link, true
}

// bereft reports whether the process has no children but those that it had when it was found.
func (o *owner) bereft() bool {
	children, ok := o.progeny()
	return ok && bytes.Equal(children, o.children)
}

// Processes with more threads are not looked at: a look would cost more than it saves.
const maxThreads = 32

// asleep reports whether each thread waits for something to happen, and what is known of children that have ended.
func (o *owner) asleep() (reaped string, yes bool) {
	main, ok := o.stat(o.pid)
	o.used = main.used
	if !ok || main.state != 'S' || main.threads > maxThreads || !o.counted(main.threads) {
		return "", false
	}
	for _, tid := range o.threads {
		if tid == o.pid {
			continue
		}
		if t, ok := o.stat(tid); !ok || t.state != 'S' {
			o.threads = nil // one may have ended, and another begun
			return "", false
		}
	}
	return main.reaped, true
}

// counted makes sure that threads has as many as the process has now.
func (o *owner) counted(now int) bool {
	switch {
	case len(o.threads) == now:
		return true
	case now == 1:
		o.threads = []string{o.pid}
		return true
	}
	var err error
	o.threads, err = names(o.dir, "task")
	return err == nil
}

// progeny returns the numbers of the children of those threads that were counted, those that ended and were not waited for
// included. A kernel may be built without them.
func (o *owner) progeny() (children []byte, ok bool) {
	for _, tid := range o.threads {
		of, ok := o.read("task/" + tid + "/children")
		if !ok {
			return nil, false
		}
		children = append(children, of...)
	}
	return children, len(o.threads) > 0
}

// family takes down what there is of children, to be compared with later. It reports false if that would not tell of each: of a process that
// ignores SIGCHLD they leave nothing behind, see wait(2).
func (o *owner) family() (ok bool) {
	fd, err := unix.Openat(o.dir, "status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	status, ok := contents(fd, 8<<10)
	_, ignored, found := strings.Cut(string(status), "\nSigIgn:\t")
	ignored, _, _ = strings.Cut(ignored, "\n")
	signals, err := strconv.ParseUint(ignored, 16, 64)
	if !ok || !found || err != nil || signals>>(unix.SIGCHLD-1)&1 != 0 {
		return false
	}
	main, ok := o.stat(o.pid)
	if !ok || !o.counted(main.threads) {
		return false
	}
	o.reaped = main.reaped
	o.children, ok = o.progeny()
	return ok
}

// thread is what is known of a thread: proc_pid_stat(5).
type thread struct {
	state   byte
	used    time.Duration // of processors
	threads int           // of its process
	// reaped is what its process has of children that it has waited for, their page faults and times. No program ends without a
	// page fault, so it changes with each.
	reaped string
}

// clockTick is USER_HZ, the same on all machines that Go knows.
const clockTick = time.Second / 100

func (o *owner) stat(tid string) (t thread, ok bool) {
	line, ok := o.read("task/" + tid + "/stat")
	fields := strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:])) // the name before may have anything in it
	if !ok || len(fields) < 18 {
		return thread{}, false
	}
	t.state, t.reaped = fields[0][0], strings.Join([]string{fields[8], fields[10], fields[13], fields[14]}, " ")
	user, _ := strconv.Atoi(fields[11]) // the kernel writes numbers
	system, _ := strconv.Atoi(fields[12])
	t.used = time.Duration(user+system) * clockTick
	t.threads, _ = strconv.Atoi(fields[17])
	return t, true
}

// maxOpen is how many files are kept open, of each owner.
const maxOpen = 16

// read reads a file of the process that is read often.
func (o *owner) read(name string) ([]byte, bool) {
	fd, kept := o.open[name]
	if !kept {
		var err error
		if fd, err = unix.Openat(o.dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, false
		}
	}
	all, ok := contents(fd, 1<<10)
	switch {
	case ok && kept:
	case ok && len(o.open) < maxOpen:
		if o.open == nil {
			o.open = make(map[string]int)
		}
		o.open[name] = fd
	default:
		delete(o.open, name)
		unix.Close(fd)
	}
	return all, ok
}

// contents reads a file of /proc, which must be shorter than most.
func contents(fd, most int) ([]byte, bool) {
	buffer := make([]byte, most)
	n, err := unix.Pread(fd, buffer, 0) // from the beginning it is made anew
	return buffer[:max(n, 0)], err == nil && n < most
}

// names lists a directory of /proc.
func names(dir int, name string) (all []string, err error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buffer := make([]byte, 8<<10)
	for {
		n, err := unix.ReadDirent(fd, buffer)
		if err != nil || n == 0 {
			return all, err
		}
		_, _, all = unix.ParseDirent(buffer[:n], -1, all)
	}
}
