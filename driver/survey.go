package driver

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// survey is one look at the processes of this machine, for who holds which connections. It takes a process for the owner of a control
// connection if no other was seen to hold that, and if nothing leads to it through which it could do what somebody else
// wants: a relay lives on, and sleeps, when its own client dies. A relay has its client for as long as the session lasts, so it
// is seen whenever it is looked at. What a process may hold is therefore taken for harmless only if it is known to be: files;
// terminals, behind which is a person; pipes that it cannot read, that nobody else has, or that the server has too (a program that
// started it); what it wakes itself up with (eventfd and the like); its control connections to this server.
//
// Who may not look at other accounts' processes, or not at all of them (containers, hidepid), finds fewer owners or none.
type survey struct {
	proc    int             // /proc
	wanted  map[string]ends // the connections that an owner is wanted of, by what /proc calls them
	own     map[string]bool // the clients' ends of all control connections, and the server's standard streams
	holders map[string]int  // how many processes have a pipe, or a wanted connection
	blind   bool            // there are processes whose descriptors cannot be seen
}

// holding is a process that holds wanted connections.
type holding struct {
	dir   int
	pid   string
	links map[string]string // of its descriptors, by number
	// suspects are those through which somebody else might speak to it.
	suspects map[string]string
}

// A process with more descriptors is no owner.
const maxDescriptors = 256

// searchOwners is findOwners, and says how much of a processor's time it took.
func searchOwners(wanted, all []ends, found func(map[ends]*owner)) (cost time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	findOwners(wanted, all, found)
	return threadTime() - before
}

// threadTime is what this thread has had of processors; see clock_gettime(2).
func threadTime() time.Duration {
	var spent unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &spent) // every kernel that has /proc has it
	return time.Duration(spent.Nano())
}

// passes are the pauses before the looks at what a process holds. Data connections come and go; what has gone at the next look was none to be
// afraid of.
var passes = []time.Duration{0, 2 * time.Millisecond, 6 * time.Millisecond}

// findOwners looks for the owners of the wanted connections, given those of all sessions, and hands over those that it has found, once after each
// pass. The receiver closes them. Some clients keep their data connection until they are told that the upload is over: whoever waits
// for the first pass must not wait for the others.
func findOwners(wanted, all []ends, found func(map[ends]*owner)) {
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(proc)
	s := survey{proc: proc, wanted: make(map[string]ends), own: make(map[string]bool), holders: make(map[string]int)}
	if s.name(wanted, all) != nil || len(s.wanted) == 0 {
		return
	}
	left := s.holdings()
	for _, pause := range passes {
		if len(left) == 0 {
			return
		}
		nap(pause)
		now := make(map[ends]*owner)
		left = slices.DeleteFunc(left, func(h *holding) bool {
			if !s.alone(h) {
				return false
			}
			s.owned(h, now)
			unix.Close(h.dir)
			return true
		})
		found(now)
	}
	for _, h := range left {
		unix.Close(h.dir)
	}
}

// name asks what /proc calls the connections.
func (s *survey) name(wanted, all []ends) error {
	diag, err := openSockDiag()
	if err != nil {
		return err
	}
	defer diag.close()
	for _, e := range all {
		if link, err := diag.link(e); err == nil { // or it has ended
			s.own[link] = true
			if slices.Contains(wanted, e) {
				s.wanted[link] = e
			}
		}
	}
	for _, fd := range []string{"0", "1", "2"} {
		var buffer [unix.PathMax]byte
		if n, err := unix.Readlinkat(s.proc, "self/fd/"+fd, buffer[:]); err == nil {
			s.own[string(buffer[:n])] = true
		}
	}
	return nil
}

// holdings looks at all processes and returns those that hold a wanted connection. This one, which may have very many
// descriptors, is left out: it listens, and so it would be taken for a relay.
func (s *survey) holdings() (all []*holding) {
	pids, err := names(s.proc, ".")
	s.blind = err != nil
	self := strconv.Itoa(os.Getpid())
	for _, pid := range pids {
		if pid[0] < '1' || pid[0] > '9' || pid == self {
			continue
		}
		dir, err := unix.Openat(s.proc, pid, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // it has ended
		}
		held, err := descriptors(dir)
		s.blind = s.blind || err != nil
		if s.count(held) && len(held) <= maxDescriptors {
			all = append(all, &holding{dir, pid, held, held})
			continue
		}
		unix.Close(dir)
	}
	return all
}

// count reports whether there is a wanted connection among what a process holds.
func (s *survey) count(held map[string]string) (has bool) {
	seen := make(map[string]bool)
	for _, link := range held {
		_, wanted := s.wanted[link]
		if (wanted || strings.HasPrefix(link, "pipe:")) && !seen[link] {
			seen[link] = true
			s.holders[link]++
		}
		has = has || wanted
	}
	return has
}

// alone reports whether nobody can speak to the process but this server, as far as was seen until now.
func (s *survey) alone(h *holding) bool {
	suspects := make(map[string]string)
	for fd, link := range h.suspects {
		o := owner{dir: h.dir, fd: "fd/" + fd, link: link}
		if there, known := o.holds(); !known || there && !s.harmless(h.dir, o.fd, link) {
			suspects[fd] = link
		}
	}
	h.suspects = suspects
	return len(suspects) == 0
}

// owned adds to found what the process is the owner of.
func (s *survey) owned(h *holding, found map[ends]*owner) {
	for fd, link := range h.links {
		e, ok := s.wanted[link]
		if !ok || s.holders[link] != 1 || found[e] != nil {
			continue
		}
		dir, err := unix.FcntlInt(uintptr(h.dir), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return
		}
		o := &owner{dir: dir, pid: h.pid, fd: "fd/" + fd, link: link, lone: s.sessions(h) == 1}
		if !o.family() {
			o.close()
			return
		}
		found[e] = o
	}
}

// sessions is how many descriptors of control connections a process has.
func (s *survey) sessions(h *holding) (n int) {
	for _, link := range h.links {
		if s.own[link] && strings.HasPrefix(link, "socket:") {
			n++
		}
	}
	return n
}

// wakers are what a process wakes itself up with.
var wakers = []string{"anon_inode:[eventpoll]", "anon_inode:[eventfd]", "anon_inode:[timerfd]", "anon_inode:[signalfd]", "anon_inode:inotify", "anon_inode:[pidfd]"}

// harmless reports whether nobody else can speak to the process through the descriptor.
func (s *survey) harmless(dir int, fd, link string) bool {
	switch {
	case s.own[link] && (strings.HasPrefix(link, "socket:") || strings.HasPrefix(link, "pipe:")):
		return true
	case strings.HasPrefix(link, "socket:"):
		return false
	case strings.HasPrefix(link, "anon_inode:"):
		return slices.Contains(wakers, link)
	case strings.HasPrefix(link, "pipe:") && s.holders[link] == 1 && !s.blind:
		return true
	}
	var file, entry unix.Stat_t
	if unix.Fstatat(dir, fd, &file, 0) != nil || unix.Fstatat(dir, fd, &entry, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false
	}
	const readable = 0o400 // the mode of the link is that of the descriptor, proc_pid_fd(5)
	switch file.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		return true
	case unix.S_IFIFO:
		return entry.Mode&readable == 0
	case unix.S_IFCHR:
		return harmlessDevice(file.Rdev)
	}
	return false
}

// harmlessDevice knows /dev/null, zero, full, random and urandom, and terminals; see devices.txt of Linux.
func harmlessDevice(device uint64) bool {
	const memory, terminals, lastTerminals = 1, 136, 143
	major, minor := unix.Major(device), unix.Minor(device)
	return major == memory && slices.Contains([]uint32{3, 5, 7, 8, 9}, minor) || major >= terminals && major <= lastTerminals
}

// descriptors reads what those of a process are, by number. One that has ended has none.
func descriptors(dir int) (map[string]string, error) {
	fds, err := unix.Openat(dir, "fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, unlessGone(err)
	}
	defer unix.Close(fds)
	all, err := names(fds, ".")
	held := make(map[string]string, len(all))
	var buffer [unix.PathMax]byte
	for _, fd := range all {
		n, err := unix.Readlinkat(fds, fd, buffer[:])
		if err == nil {
			held[fd] = string(buffer[:n])
		} else if unlessGone(err) != nil {
			return held, err
		}
	}
	return held, unlessGone(err)
}

// unlessGone leaves out errors that say that a process, or what it held, is no more.
func unlessGone(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
