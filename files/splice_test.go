package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eager is a connection of which each Read takes all that there is room for, as if the client were always ahead: so an upload is
// spliced as soon as may be, and tried again after each Read.
type eager struct{ *net.TCPConn }

func (e eager) Read(p []byte) (int, error) {
	n, err := io.ReadFull(e.TCPConn, p)
	if err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}

// someBytes are none that could be mistaken for others.
func someBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// splices counts how often something was spliced to a file, and has the system refuse what refuse returns an error for: it is given
// the name of a call and how many of that name there were.
type splices struct {
	to     int
	counts map[string]int
	refuse func(call string, n int) error
}

func (c *splices) before(call string) error {
	if c.counts == nil {
		c.counts = make(map[string]int)
	}
	c.counts[call]++
	if call == "splice to file" {
		c.to++
	}
	if c.refuse == nil {
		return nil
	}
	return c.refuse(call, c.counts[call])
}

// onCall refuses the n-th call of a name.
func onCall(name string, n int, err error) func(string, int) error {
	return func(call string, i int) error {
		if call == name && i == n {
			return err
		}
		return nil
	}
}

// sends has a client send content, cut into pieces, and end the connection.
func sends(t *testing.T, a *net.TCPConn, pieces ...[]byte) *sync.WaitGroup {
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, p := range pieces {
			if _, err := a.Write(p); err != nil {
				return // the upload may fail
			}
		}
		a.CloseWrite()
	})
	t.Cleanup(func() { a.Close(); wg.Wait() })
	return &wg
}

// mustSplice uploads content over a connection on which it is spliced as soon as may be.
func (s *served) mustSplice(name string, content []byte) {
	s.t.Helper()
	a, b := tcpPair(s.t)
	sends(s.t, a, content)
	u, err := s.Upload(name, UploadOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := u.ReadFrom(eager{b})
	if err != nil || n != int64(len(content)) || u.Received() != n || u.Size() != n {
		s.t.Errorf("%d of %d bytes, %d received, size %d, %v", n, len(content), u.Received(), u.Size(), err)
	}
	if err := u.Publish(); err != nil {
		s.t.Fatal(err)
	}
	s.want(name, string(content))
}

// wantNoneLent fails the test if anybody has a pipe, or more are kept than may be.
func (s *served) wantNoneLent() {
	s.t.Helper()
	s.pipes.mu.Lock()
	defer s.pipes.mu.Unlock()
	if s.pipes.lent != 0 || len(s.pipes.idle) > maxIdle {
		s.t.Errorf("%d pipes are lent, %d are kept", s.pipes.lent, len(s.pipes.idle))
	}
}

// openPipes counts the ends of pipes that this process has.
func openPipes() int {
	n := 0
	list, _ := os.ReadDir("/proc/self/fd")
	for _, e := range list {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

func TestSplicedUploadsAreExact(t *testing.T) {
	const piece = 256<<10 - 1
	for _, size := range []int{
		0, 1, piece, spliceAfter - 1, spliceAfter, spliceAfter + 1, 5*piece - 1, 5 * piece, 5*piece + 1, 5*piece + spliceLeast,
		5*piece + pipeSize - 1, 5*piece + pipeSize, 5*piece + pipeSize + 1, 9_999_991,
	} {
		for _, random := range []bool{false, true} {
			s := serve(t, Options{})
			var count splices
			s.sys.before = count.before
			content := someBytes(uint64(size), size)
			pieces := [][]byte{content}
			if random {
				pieces = nil
				for left := content; len(left) > 0; {
					n := min(len(left), 1+rand.IntN(1<<rand.IntN(20)))
					pieces, left = append(pieces, left[:n]), left[n:]
				}
			}
			a, b := tcpPair(t)
			sends(t, a, pieces...)
			var conn io.Reader = b
			if !random {
				conn = eager{b}
			}
			var told int64
			u, err := s.Upload("/f", UploadOptions{Pace: Pace{Timeout: time.Minute, Progress: func(n int64) { told += n }}})
			if err != nil {
				t.Fatal(err)
			}
			n, err := u.ReadFrom(conn)
			if err != nil || n != int64(size) || u.Received() != n || u.Size() != n || told != n {
				t.Errorf("%d of %d bytes, %d received, size %d, told %d, %v", n, size, u.Received(), u.Size(), told, err)
			}
			if err := u.Publish(); err != nil {
				t.Fatal(err)
			}
			s.want("/f", string(content))
			s.wantNoneLent()
			if small := size <= spliceAfter; small && (count.to > 0 || len(s.pipes.idle) > 0) || size > 5*piece+1 && !random && count.to == 0 {
				t.Errorf("%d bytes: spliced %d times", size, count.to)
			}
			s.Close()
		}
	}
}

// What was written before stays, and what comes goes behind it.
func TestWhatIsSplicedGoesBehindTheOldContent(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "old content")
	a, b := tcpPair(t)
	content := someBytes(1, 5_000_000)
	sends(t, a, content)
	u, err := s.Upload("/f", UploadOptions{HasOffset: true, Offset: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.ReadFrom(eager{b}); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "old "+string(content)+"end")
}

// In the middle of an upload splice turns out to be impossible: all that came is written, in order, and splice is not tried again.
func TestAnUploadThatCannotBeSplicedGoesOn(t *testing.T) {
	content := someBytes(2, 12_345_678)
	for _, errno := range []unix.Errno{unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM} {
		for _, call := range []string{"splice from connection", "splice to file"} {
			for n := range 3 {
				s := serve(t, Options{})
				count := splices{refuse: onCall(call, n+1, errno)}
				s.sys.before = count.before
				s.mustSplice("/f", content)
				if count.counts[call] != n+1 {
					t.Errorf("%s: %v the %d. time, asked %d times", call, errno, n+1, count.counts[call])
				}
				s.wantNoneLent()
				s.Close()
			}
		}
	}
}

// The kernel says so itself: it does not splice to a file that is open for appending.
func TestAFileThatCannotBeSplicedToIsWritten(t *testing.T) {
	s := serve(t, Options{})
	var count splices
	s.sys.before = count.before
	content := someBytes(3, 12_345_678)
	a, b := tcpPair(t)
	sends(t, a, content)
	u, err := s.Upload("/f", UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(u.file.Fd(), unix.F_SETFL, unix.O_APPEND); err != nil {
		t.Fatal(err)
	}
	n, err := u.ReadFrom(eager{b})
	if err != nil || n != int64(len(content)) || u.Size() != n || count.to != 1 {
		t.Errorf("%d bytes, size %d, %v, spliced %d times", n, u.Size(), err, count.to)
	}
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", string(content))
	s.wantNoneLent()
}

// stingy has a file take no more than 100,000 bytes at a time out of a pipe.
type stingy struct {
	syscall.RawConn
	pipe *pipe
}

func (s stingy) Control(f func(uintptr)) error {
	beyond := max(s.pipe.held-100_000, 0)
	s.pipe.held -= beyond
	defer func() { s.pipe.held += beyond }()
	return s.RawConn.Control(f)
}

func TestAFileThatTakesLittleAtATime(t *testing.T) {
	s := serve(t, Options{})
	var count splices
	s.sys.before = count.before
	u, err := s.Upload("/f", UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file, err := u.file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	content := someBytes(14, 777_777)
	if p.held, err = unix.Write(p.w, content); err != nil {
		t.Fatal(err)
	}
	part := spliced{upload: u, file: stingy{file, p}}
	if err := part.drain(p, nil); err != nil || p.held != 0 || u.Size() != int64(len(content)) || count.to != 8 {
		t.Errorf("%v, %d left, size %d, spliced %d times", err, p.held, u.Size(), count.to)
	}
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", string(content))
}

func TestWithoutAPipeAnUploadIsReadAndWritten(t *testing.T) {
	s := serve(t, Options{})
	var count splices
	s.sys.before = count.before
	s.pipes.lent = maxPipes // to others
	content := someBytes(4, 5_000_000)
	s.mustSplice("/f", content)
	if count.to != 0 || s.pipes.lent != maxPipes {
		t.Errorf("spliced %d times, %d pipes lent", count.to, s.pipes.lent)
	}
	s.pipes.lent = 0
	s.mustSplice("/f", content)
	if count.to == 0 {
		t.Error("there are pipes again, and none is used")
	}
	s.wantNoneLent()
}

// childNoMorePipes uploads when its user may not have another pipe of that size.
func childNoMorePipes() {
	t := childTree()
	defer t.Close()
	var err error
	for range 200 {
		var p *pipe
		if p, err = newPipe(); err != nil {
			break
		}
		defer p.close()
	}
	if err == nil {
		fmt.Println("skip: any number of pipes")
		return
	}
	before := openPipes()
	u, err := t.Upload("/f", UploadOptions{})
	if err != nil {
		panic(err)
	}
	n, err := u.ReadFrom(readConnection(strings.Repeat("x", 5_000_000)))
	kept := 2 * len(t.pipes.idle) // another process of the user may have made room meanwhile
	fmt.Println("received:", n, err, openPipes()-before-kept, t.pipes.lent)
	fmt.Println("published:", u.Publish())
}

func TestAUserWithoutRoomForAPipe(t *testing.T) {
	s := serve(t, Options{})
	cmd := child(t, "no more pipes", s)
	cmd.SysProcAttr = ownNamespaces(0) // so that root, too, is bound by the limit
	out, err := cmd.Output()
	if err != nil || strings.HasPrefix(string(out), "skip:") {
		t.Skipf("no such limit here: %v %s", err, out)
	}
	if want := "received: 5000000 <nil> 0 0\npublished: <nil>\n"; string(out) != want {
		t.Errorf("%s", out)
	}
	s.want("/f", strings.Repeat("x", 5_000_000))
}

// Whatever fails in the middle is told, the old file stays, no pipe is lost, and nothing of the upload gets into the next one.
func TestASplicedUploadThatFails(t *testing.T) {
	before := openPipes()
	content, next := someBytes(5, 9_999_991), someBytes(6, 8_888_881)
	for _, call := range []string{"splice from connection", "write", "splice to file"} {
		for n, errno := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EFBIG, unix.EIO} {
			n++
			if call == "write" {
				n += 5 // those before are no splices
			}
			s := serve(t, Options{})
			s.put("/f", "old")
			s.sys.before = (&splices{refuse: onCall(call, n, errno)}).before
			a, b := tcpPair(t)
			sends(t, a, content)
			u, err := s.Upload("/f", UploadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := u.ReadFrom(eager{b})
			wantIs(t, err, errno)
			s.wantPath(err, "/f")
			if got != u.Received() || u.Size() > got || got-u.Size() > pipeSize || got > int64(len(content)) {
				t.Errorf("%d bytes, %d received, size %d", got, u.Received(), u.Size())
			}
			wantIs(t, u.Publish(), errno, ErrBroken)
			s.want("/f", "old")
			s.wantClean()
			s.wantNoneLent()
			s.sys.before = nil
			s.mustSplice("/f", next)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			a.Close()
			b.Close()
		}
	}
	if after := openPipes(); after != before {
		t.Errorf("%d ends of pipes, %d before", after, before)
	}
}

// A Discard from elsewhere and a connection that is closed end the upload at its next step.
func TestASplicedUploadIsEndedFromElsewhere(t *testing.T) {
	for _, c := range []struct {
		what string
		end  func(u *Upload, server net.Conn)
		want error
	}{
		{"discard", func(u *Upload, _ net.Conn) { u.Discard() }, fs.ErrClosed},
		{"close", func(_ *Upload, server net.Conn) { server.Close() }, net.ErrClosed},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := serve(t, Options{})
			a, b := tcpPair(t)
			sends(t, a, someBytes(7, 64<<20))
			u, err := s.Upload("/f", UploadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s.sys.before = (&splices{refuse: func(call string, n int) error {
				if call == "splice to file" && n == 1 {
					var wg sync.WaitGroup
					wg.Go(func() { c.end(u, b) })
					wg.Wait()
				}
				return nil
			}}).before
			n, err := u.ReadFrom(eager{b})
			wantIs(t, err, c.want)
			s.wantPath(err, "/f")
			if n > 8<<20 {
				t.Errorf("it went on for %d bytes", n)
			}
			if err := u.Discard(); err != nil && !errors.Is(err, ErrDone) {
				t.Error(err)
			}
			s.wantClean()
			s.wantNoneLent()
			s.sys.before = nil
			s.mustSplice("/f", someBytes(8, 5_000_000))
		})
	}
}

// watched tells of each Read, before it waits.
type watched struct {
	eager
	reads func()
}

func (w watched) Read(p []byte) (int, error) {
	w.reads()
	return w.eager.Read(p)
}

// Whoever waits for a client has no pipe.
func TestASlowClientHoldsNoPipe(t *testing.T) {
	s := serve(t, Options{})
	a, b := tcpPair(t)
	first, rest := someBytes(9, 5_000_000), someBytes(10, 5_000_000)
	goOn, waits := make(chan struct{}), false
	var sender sync.WaitGroup
	sender.Go(func() {
		a.Write(first)
		<-goOn
		a.Write(rest)
		a.CloseWrite()
	})
	u, err := s.Upload("/f", UploadOptions{Pace: Pace{Timeout: 5 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = u.ReadFrom(watched{eager{b}, func() {
		s.wantNoneLent()
		if !waits && u.Received() > int64(len(first))-256<<10 { // the Read cannot be done with what is left
			waits = true
			close(goOn)
		}
	}})
	if !waits {
		t.Error("it waits without a Read")
		close(goOn)
	}
	b.Close()
	sender.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", string(first)+string(rest))
}

func TestAClientThatStallsInTheSplicedPart(t *testing.T) {
	s := serve(t, Options{})
	a, b := tcpPair(t)
	content := someBytes(11, 5_000_000)
	if err := s.upload("/f", "old", UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	var sender sync.WaitGroup
	sender.Go(func() { a.Write(content) })
	var told int64
	var count splices
	s.sys.before = count.before
	u, err := s.Upload("/f", UploadOptions{Pace: Pace{Timeout: 200 * time.Millisecond, Step: 20 * time.Millisecond, Progress: func(n int64) { told += n }}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := u.ReadFrom(eager{b})
	sender.Wait()
	wantIs(t, err, os.ErrDeadlineExceeded)
	if n != int64(len(content)) || told != n || u.Size() != n || count.to == 0 {
		t.Errorf("%d bytes, told %d, size %d, spliced %d times", n, told, u.Size(), count.to)
	}
	wantIs(t, u.Publish(), os.ErrDeadlineExceeded)
	s.want("/f", "old")
	s.wantNoneLent()
}

// hurried is a connection of which a step fails for want of time.
type hurried struct {
	eager
	step func() error
}

func (h hurried) Read(p []byte) (int, error) {
	if err := h.step(); err != nil {
		return 0, err
	}
	return h.eager.Read(p)
}

func (h hurried) SyscallConn() (syscall.RawConn, error) {
	rc, err := h.eager.SyscallConn()
	return hurriedSocket{rc, h.step}, err
}

type hurriedSocket struct {
	syscall.RawConn
	step func() error
}

func (h hurriedSocket) Read(f func(uintptr) bool) error {
	if err := h.step(); err != nil {
		return err
	}
	return h.RawConn.Read(f)
}

// At each step a connection in a hurry may give up, and the next ReadFrom goes on.
func TestASplicedUploadInAHurryIsGoneOnWith(t *testing.T) {
	content := someBytes(12, 5_000_000)
	for n := 1; ; n++ {
		s := serve(t, Options{})
		a, b := tcpPair(t)
		sends(t, a, content)
		u, err := s.Upload("/f", UploadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		steps := 0
		conn := hurried{eager{b}, func() error {
			if steps++; steps == n {
				return &net.OpError{Op: "read", Err: ErrWouldWait}
			}
			return nil
		}}
		_, err = u.ReadFrom(conn)
		interrupted := err != nil
		if interrupted {
			wantIs(t, err, ErrWouldWait)
			s.wantNoneLent()
			if _, err = u.ReadFrom(conn); err != nil {
				t.Fatal(err)
			}
		}
		if err := u.Publish(); err != nil {
			t.Fatal(err)
		}
		s.want("/f", string(content))
		s.Close()
		a.Close()
		b.Close()
		if !interrupted {
			if n < 8 {
				t.Errorf("only %d steps", n)
			}
			return
		}
	}
}

// Splice stops before urgent data and tells of an end that is behind it; a Read leaves it out, and goes on.
func TestUrgentDataIsNotTheEnd(t *testing.T) {
	s := serve(t, Options{})
	a, b := tcpPair(t)
	if err := b.SetReadBuffer(400_000); err != nil {
		t.Fatal(err)
	}
	content := someBytes(13, 5*(256<<10-1)+spliceLeast+30_000)
	cut := len(content) - 10_000
	sent := make(chan struct{})
	var sender sync.WaitGroup
	sender.Go(func() {
		defer close(sent)
		rc, err := a.SyscallConn()
		if err != nil {
			t.Error(err)
			return
		}
		a.Write(content[:cut])
		outer := rc.Write(func(fd uintptr) bool {
			_, err = unix.SendmsgN(int(fd), []byte("!"), nil, nil, unix.MSG_OOB)
			return err != unix.EAGAIN
		})
		if err := errors.Join(outer, err); err != nil {
			t.Error(err)
		}
		a.Write(content[cut:])
		a.CloseWrite()
	})
	u, err := s.Upload("/f", UploadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	count := splices{refuse: func(call string, n int) error {
		if call == "splice from connection" {
			select {
			case <-sent: // all the rest has room in the kernel
			case <-time.After(5 * time.Second):
				t.Error("it has not")
			}
		}
		return nil
	}}
	s.sys.before = count.before
	if _, err := u.ReadFrom(eager{b}); err != nil {
		t.Fatal(err)
	}
	sender.Wait()
	if err := u.Publish(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(s.host("/f"))
	if err != nil || !bytes.Equal(got, content) || count.to == 0 {
		t.Errorf("%d of %d bytes, equal: %v, %v, spliced %d times", len(got), len(content), slices.Equal(got, content), err, count.to)
	}
}

// Pipes that are kept are closed with the tree, and those that are lent when they come back.
func TestPipesAreClosedWithTheTree(t *testing.T) {
	before := openPipes()
	var p pipes
	var lent []*pipe
	for range maxPipes {
		one, err := p.take()
		if err != nil || one == nil {
			t.Fatal(one, err)
		}
		lent = append(lent, one)
	}
	if one, err := p.take(); one != nil || err != nil {
		t.Errorf("one more: %v, %v", one, err)
	}
	last := lent[0]
	for _, one := range lent[1:] {
		p.put(one)
	}
	if len(p.idle) != maxIdle || openPipes() != before+2*(maxIdle+1) {
		t.Errorf("%d are kept, %d ends are open", len(p.idle), openPipes()-before)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	p.put(last)
	if n := openPipes(); n != before || p.lent != 0 {
		t.Errorf("%d ends are open, %d lent", n-before, p.lent)
	}
}
