package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/locksmith"
)

// direction is what a partition drops.
type direction string

const (
	dropsBoth     direction = "both directions"
	dropsCommands direction = "commands"
	dropsReplies  direction = "replies"
	endsAtServer  direction = "both directions, and the server gives the connection up" // as with user_timeout
)

// partition is a network between a client and a server that breaks at a step. A step is a command, or the last line of a reply.
type partition struct {
	*relay
	drops direction
	at    int // the step that is dropped first
	again int // at this step the connections end, and the client connects again; 0: never

	mu     sync.Mutex
	steps  int
	broken chan struct{} // closed at that step
}

func newPartition(t testing.TB, server string, drops direction, at, again int) *partition {
	p := &partition{drops: drops, at: at, again: again, broken: make(chan struct{})}
	p.relay = startRelay(t, func() string { return server }, func(_ *relay, c pair, _ bool) { p.carry(c) })
	return p
}

// step counts a step, and reports whether the network is broken, or the connection ends, there.
func (p *partition) step() (broken, ends bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps++
	if p.steps == p.at {
		close(p.broken)
	}
	return p.steps >= p.at, p.steps == p.again
}

// carry passes lines on until the network is broken. It reads the lines that it drops, so that their sender does not notice.
func (p *partition) carry(c pair) {
	lines := func(to, from *net.TCPConn, dropped direction, isStep func(string) bool) {
		r := bufio.NewReader(from)
		for broken := p.isBroken(); ; {
			line, err := r.ReadString('\n')
			if err == nil && isStep(line) {
				var ends bool
				if broken, ends = p.step(); ends {
					c.reset()
				}
			}
			if broken = broken || p.isBroken(); broken && p.drops == endsAtServer {
				_ = c.server.SetLinger(0)
				c.server.Close()
			}
			passes := !broken || (p.drops == dropsCommands || p.drops == dropsReplies) && p.drops != dropped
			switch {
			case err != nil && passes:
				_ = to.CloseWrite()
				return
			case err != nil:
				return
			case passes:
				_, _ = io.WriteString(to, line)
			}
		}
	}
	var both sync.WaitGroup
	both.Go(func() { lines(c.server, c.client, dropsCommands, func(string) bool { return true }) })
	lines(c.client, c.server, dropsReplies, func(line string) bool { return len(line) > 3 && line[3] == ' ' && line[0] != ' ' })
	both.Wait()
}

func (p *partition) isBroken() bool {
	select {
	case <-p.broken:
		return true
	default:
		return false
	}
}

// leased has locks that the server ends after eight seconds, each for another reason. The margin of such a lease is 1.6 seconds.
const leased = `
[[lock]]
match = "/age/*"
max_age = "8s"
max_idle = "0"
[[lock]]
match = "/idle/*"
max_idle = "8s"
[[lock]]
match = "/grace/*"
max_idle = "0"
`

// TestLocksmithIsDoneBeforeTheServerGrantsTheLockAgain breaks the network at each step of a client that holds a lock: login, grant, questions,
// renewals, and a new connection.
func TestLocksmithIsDoneBeforeTheServerGrantsTheLockAgain(t *testing.T) {
	t.Parallel()
	s := startServer(t, leased)
	s.errorsExpected = true
	for _, dir := range []string{"age", "idle", "grace"} {
		s.write(dir+"/.keep", "")
	}
	limit := make(chan struct{}, 50) // all of them at once, but not with -long
	var all sync.WaitGroup
	n, last := 0, 70
	for _, why := range []string{"age", "idle", "grace"} {
		for _, drops := range []direction{dropsBoth, dropsCommands, dropsReplies, endsAtServer} {
			if why == "grace" && drops != endsAtServer {
				continue // the server does not notice
			}
			for at := 20 + n%count(11, 1); at <= last; at += count(11, 1) {
				n++
				path := fmt.Sprintf("/%s/%d", why, n)
				again := 0
				if at > 45 {
					again = 40
				}
				limit <- struct{}{}
				all.Go(func() {
					defer func() { <-limit }()
					err := unlessBusy(func(try int) error {
						return overBeforeGranted(t, s, fmt.Sprintf("%s-%d", path, try), drops, at, again)
					})
					if err != nil {
						t.Errorf("%s is limited by its %s; the network drops %s from step %d: %v", path, why, drops, at, err)
					}
				})
			}
		}
	}
	all.Wait()
	t.Logf("figures: %d partitions", n)
}

// errBusy is returned for a client whose lock ended before the network broke, because the machine was busy.
var errBusy = errors.New("the lock ended before the network broke")

// unlessBusy calls f again, up to five times, after an error on a machine that was busy: errBusy, or a timer that was late by more than half of the
// margin of a lease. Such a run proves nothing.
func unlessBusy(f func(try int) error) (err error) {
	const tick, late = 50 * time.Millisecond, 800 * time.Millisecond
	for try := range 5 {
		var stalled atomic.Bool
		done := make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() {
			for last := time.Now(); ; last = time.Now() {
				select {
				case <-done:
					return
				case <-time.After(tick):
					if time.Since(last) > late {
						stalled.Store(true)
					}
				}
			}
		})
		err = f(try)
		close(done)
		watching.Wait()
		if err == nil || !errors.Is(err, errBusy) && !stalled.Load() {
			break
		}
	}
	return err
}

// nextGrant waits for a lock as another client, releases it, and returns when it was granted.
func (s *server) nextGrant(path string) (granted time.Time, err error) {
	c := s.session("other")
	defer c.Conn.Close()
	for _, line := range []string{"SITE WAIT 60", "MKD " + path, "RMD " + path} {
		if _, err := c.Ask(line); err != nil {
			return granted, err
		}
		if strings.HasPrefix(line, "MKD") {
			granted = time.Now()
		}
	}
	return granted, nil
}

// overBeforeGranted has a client take a lock through a network that breaks, and another one wait for it. It returns an error if the first
// one's lock is not over when the second one is granted it.
func overBeforeGranted(t *testing.T, s *server, path string, drops direction, at, again int) error {
	p := newPartition(t, s.v4, drops, at, again)
	defer p.close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	grace := 8 * time.Second
	if !strings.HasPrefix(path, "/grace/") {
		grace = time.Minute
	}
	over := make(chan time.Time, 1)
	go func() {
		l, err := wish{
			Config:  locksmith.Config{Address: p.address(), User: account, Password: password, Timeout: time.Minute, Grace: grace, Check: 100 * time.Millisecond},
			Path:    path,
			Options: locksmith.Options{Renew: true},
		}.acquire(ctx)
		if err != nil {
			over <- time.Time{}
			return
		}
		select {
		case <-l.Context().Done():
		case <-ctx.Done():
		}
		over <- time.Now()
		cancel()
		_ = l.Release(ctx)
	}()
	select {
	case <-p.broken:
	case <-over:
		return errBusy
	case <-time.After(patience):
		return fmt.Errorf("the client stopped at step %d", p.steps)
	}
	granted, err := s.nextGrant(path)
	if err != nil {
		return err
	}
	cancelAcquire := time.AfterFunc(5*time.Second, cancel)
	defer cancelAcquire.Stop()
	ended := <-over
	if ended.After(granted) {
		err = fmt.Errorf("the lock of the first was over %v after the second was granted it", ended.Sub(granted))
	}
	return err
}

// TestAJoinedLockIsDoneBeforeTheServerGrantsTheLockAgain breaks the network of a client that has joined the lock of another connection, and then ends
// that connection.
func TestAJoinedLockIsDoneBeforeTheServerGrantsTheLockAgain(t *testing.T) {
	t.Parallel()
	s := startServer(t, leased)
	s.errorsExpected = true
	s.write("grace/.keep", "")
	err := unlessBusy(func(try int) error {
		holder, path := s.session(account), fmt.Sprintf("/grace/%d", try)
		for _, line := range []string{"SITE LOCK AS job", "SITE LOCK DISCONNECT RELEASE 8", "MKD " + path} {
			if _, err := holder.Ask(line); err != nil {
				return err
			}
		}
		p := newPartition(t, s.v4, dropsBoth, 60, 0)
		defer p.close()
		l, err := locksmith.Join(t.Context(), locksmith.Config{Address: p.address(), User: account, Password: password, Check: 100 * time.Millisecond},
			locksmith.Ticket{Token: 1, JobKey: "job", Path: path}, locksmith.Options{})
		if err != nil {
			return err
		}
		defer l.Release(t.Context())
		<-p.broken
		holder.Conn.Close()
		if _, err := s.nextGrant(path); err != nil {
			return err
		}
		select {
		case <-l.Context().Done():
		default:
			return errors.New("another client was granted the lock before the context of the joined lock ended")
		}
		if err := l.Release(t.Context()); !errors.Is(err, locksmith.ErrLost) {
			return fmt.Errorf("released with %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestNetlockRunKillsItsCommandBeforeTheServerGrantsTheLockAgain has a command ignore SIGTERM.
func TestNetlockRunKillsItsCommandBeforeTheServerGrantsTheLockAgain(t *testing.T) {
	t.Parallel()
	s := startServer(t, leased)
	s.errorsExpected = true
	for _, dir := range []string{"age", "idle"} {
		s.write(dir+"/.keep", "")
	}
	limit := make(chan struct{}, 20)
	var all sync.WaitGroup
	defer all.Wait()
	n := 0
	for _, dir := range []string{"age", "idle"} {
		for _, drops := range []direction{dropsBoth, dropsCommands, dropsReplies, endsAtServer} {
			for at := 28 + n%count(4, 1); at <= 53; at += count(30, 1) { // the command runs from step 27 on; two steps are a check each two seconds
				n++
				path := fmt.Sprintf("/%s/%d", dir, n)
				limit <- struct{}{}
				all.Go(func() {
					defer func() { <-limit }()
					err := unlessBusy(func(try int) error { return deadBeforeGranted(t, s, fmt.Sprintf("%s-%d", path, try), drops, at) })
					if err != nil {
						t.Errorf("%s; the network drops %s from step %d: %v", path, drops, at, err)
					}
				})
			}
		}
	}
	all.Wait()
	t.Logf("figures: %d partitions", n)
}

// deadBeforeGranted has netlock run a command that ignores SIGTERM through a network that breaks, and another client wait for the lock. It returns
// an error if the command is not dead when that is granted it.
func deadBeforeGranted(t *testing.T, s *server, path string, drops direction, at int) error {
	p := newPartition(t, s.v4, drops, at, 0)
	defer p.close()
	alive := filepath.Join(t.TempDir(), "alive") // netlock releases the lock after the death of the command, and ends later
	if err := syscall.Mkfifo(alive, 0o600); err != nil {
		return err
	}
	began := launch(t, locker(t, "", "--renew", fmt.Sprintf("ftp://%s:%s@%s/%%2F%s", account, password, p.address(), path[1:]),
		"sh", "-c", "trap '' TERM; exec 3>"+alive+"; while :; do sleep 0.01; done"))
	dead := make(chan time.Time, 1)
	go func() {
		if f, err := os.Open(alive); err == nil {
			_, _ = io.Copy(io.Discard, f)
			f.Close()
		}
		dead <- time.Now()
	}()
	defer func() { // of the goroutine, if the command did not start
		if f, err := os.OpenFile(alive, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			f.Close()
		}
	}()
	select {
	case <-p.broken:
	case <-began.exited:
		return fmt.Errorf("%w; netlock ended with status %d", errBusy, began.cmd.ProcessState.ExitCode())
	case <-time.After(patience):
		return errors.New("the network did not break")
	}
	granted, err := s.nextGrant(path)
	if err != nil {
		return err
	}
	if end := <-dead; end.After(granted) {
		return fmt.Errorf("the command was dead %v after another client was granted the lock", end.Sub(granted))
	}
	began.ended(t, 79)
	return nil
}

// TestLocksmithIsDoneInTimeWhenAReloadShortensTheAge cuts the network after a reload.
func TestLocksmithIsDoneInTimeWhenAReloadShortensTheAge(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[[lock]]\nmatch = \"/*_lock\"\nmax_age = \"1h\"\n")
	cut := make(chan struct{})
	silent := startRelay(t, func() string { return s.v4 }, func(r *relay, p pair, _ bool) {
		go func() {
			<-cut
			p.client.SetReadDeadline(time.Unix(1, 0)) // nothing is passed on, and nothing ends
			p.server.SetReadDeadline(time.Unix(1, 0))
		}()
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(p.server, p.client) })
		_, _ = io.Copy(p.client, p.server)
		both.Wait()
		<-t.Context().Done()
	})
	w := wish{Config: locksmith.Config{Address: silent.address(), User: account, Password: password, Grace: time.Minute}, Path: "/phone_lock"}
	l, err := w.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.configure("[[lock]]\nmatch = \"/*_lock\"\nmax_age = \"8s\"\n")
	s.mustReload()
	harness.Await(t, "the client has the new age", func() bool { return time.Until(l.Expires()) < 10*time.Second })
	close(cut)
	other := s.session("other")
	other.Want(200, "SITE WAIT 60")
	other.Want(257, "MKD /phone_lock")
	if l.Err() == nil {
		t.Error("the first holder has the lock when another client has it")
	}
}
