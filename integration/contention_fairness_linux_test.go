package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The article's clients try, and sleep three seconds if they were refused. Here all times are a twentieth: the sleep,
// a job of a second, and queue_hold.
const (
	pollEvery  = 150 * time.Millisecond
	jobTakes   = 50 * time.Millisecond
	scaledHold = 750 * time.Millisecond
	fairFor    = 75 * time.Second
	pollers    = 200 // at once; one in ten dies in the queue
)

// poller is a client that wants the lock again and again.
type poller struct {
	c       *session
	lock    string
	dies    int             // in its first wait, after so many tries; 0: never
	since   time.Time       // when it began to wait
	waiting bool            // it waits since then
	waits   []time.Duration // from the first try to the 257
	err     error
}

func (p *poller) run(end time.Time) {
	defer p.c.conn.Close()
	for time.Now().Before(end) {
		if !p.wait(end) {
			return
		}
		time.Sleep(jobTakes)
		if r, err := p.c.try("RMD " + p.lock); err != nil || r.code != 250 {
			p.err = fmt.Errorf("RMD: %v, %v", r, err)
			return
		}
		time.Sleep(pollEvery) // it does not snatch back what it gave away
	}
}

// wait polls until the lock is had.
func (p *poller) wait(end time.Time) bool {
	p.since, p.waiting = time.Now(), true
	for tries := 1; time.Now().Before(end); tries++ {
		r, err := p.c.try("MKD " + p.lock)
		switch {
		case err != nil || r.code != 257 && r.code != 550:
			p.err = fmt.Errorf("MKD: %v, %v", r, err)
			return false
		case p.dies == tries:
			if r.code == 257 { // it was quicker than it was to die
				_, p.err = p.c.try("RMD " + p.lock)
			}
			return false
		case r.code == 257:
			p.waits, p.waiting = append(p.waits, time.Since(p.since)), false
			return true
		}
		time.Sleep(pollEvery)
	}
	return false
}

// fairness has the pollers loose and tells how the waiting was shared.
func fairness(t *testing.T, name, lock string, connect func() *session) (worst float64) {
	t.Helper()
	var all []*poller
	for i := range pollers {
		p := &poller{c: connect(), lock: lock}
		if i%10 == 0 {
			p.dies = 3 + i/10%4
		}
		all = append(all, p)
	}
	begun := time.Now()
	end := begun.Add(fairFor)
	var running sync.WaitGroup
	for i, p := range all {
		running.Go(func() {
			time.Sleep(time.Duration(i) * pollEvery / pollers)
			p.run(end)
		})
	}
	running.Wait()
	return judge(t, name, all, begun, end)
}

// judge compares each wait with its fair share, which is the time in which every client that lives could have had the
// lock once: their number times what a turn took, all in all. A wait that was not over at the end counts with what it had come to.
func judge(t *testing.T, name string, all []*poller, begun, end time.Time) (worst float64) {
	t.Helper()
	var waits []time.Duration
	turns, living, never, again := 0, 0, 0, 0
	for _, p := range all {
		if p.err != nil {
			t.Fatal(name, ": ", p.err)
		}
		if p.dies > 0 {
			continue
		}
		living++
		turns += len(p.waits)
		waits = append(waits, p.waits...)
		if p.waiting {
			waits = append(waits, end.Sub(p.since))
		}
		if len(p.waits) == 0 {
			never++
		}
	}
	share := time.Duration(living) * end.Sub(begun) / time.Duration(max(turns, 1))
	for _, w := range waits {
		if w > 2*share {
			again++
		}
	}
	p50, p99, most := quantiles(waits)
	worst = float64(most) / float64(share)
	t.Logf("%s: %d turns in %v, a fair share is %v; waits: median %v, p99 %v, longest %v, %.2f times the fair share; %d of %d clients never had it, %d waits were longer than twice the share",
		name, turns, end.Sub(begun), share.Round(time.Millisecond), p50.Round(time.Millisecond), p99.Round(time.Millisecond),
		most.Round(time.Millisecond), worst, never, living, again)
	return worst
}

func TestFigureContentionFairness(t *testing.T) {
	figure(t)
	t.Run("ftplockd", func(t *testing.T) {
		s := startServer(t, hour+fmt.Sprintf("queue_hold = %q\n", scaledHold))
		worst := fairness(t, "ftplockd", "/locks/job", func() *session { return s.session(account) })
		if worst > 2 && !raceEnabled {
			t.Errorf("a client waited %.2f times its fair share", worst)
		}
	})
	t.Run("vsftpd", func(t *testing.T) {
		address := startVsftpd(t)
		fairness(t, "vsftpd", "/pub/job", func() *session {
			c, _, err := connect(address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.conn.Close() })
			c.t = t
			c.want(331, "USER anonymous")
			c.want(230, "PASS x")
			return c
		})
	})
}

// findVsftpd returns a vsftpd: the one that is installed, or that "go run ./integration/bench" has unpacked.
func findVsftpd(t *testing.T) string {
	t.Helper()
	files := []string{"/usr/sbin/vsftpd"}
	if cache, err := os.UserCacheDir(); err == nil {
		files = append(files, filepath.Join(cache, "ftplockd-bench/vsftpd/usr/sbin/vsftpd"))
	}
	i := slices.IndexFunc(files, func(f string) bool {
		_, err := exec.LookPath(f)
		return err == nil
	})
	if i < 0 || os.Getuid() != 0 {
		t.Skip("the peer is left out: vsftpd wants root, and to be installed or unpacked by go run ./integration/bench")
	}
	return files[i]
}

// startVsftpd starts one whose anonymous account may make and remove directories below /pub, and returns its address.
func startVsftpd(t *testing.T) string {
	t.Helper()
	program := findVsftpd(t)
	dir, err := os.MkdirTemp("", "ftplockd-vsftpd-") // all above it must be open to the account that serves
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	root, empty, file := filepath.Join(dir, "root"), filepath.Join(dir, "empty"), filepath.Join(dir, "vsftpd.conf")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, port := split(address)
	config := "listen=YES\nlisten_address=127.0.0.1\nlisten_port=" + port + "\nanon_root=" + root + "\nsecure_chroot_dir=" + empty + `
background=NO
one_process_model=YES
isolate=NO
isolate_network=NO
seccomp_sandbox=NO
xferlog_enable=NO
session_support=NO
max_clients=0
max_per_ip=0
anonymous_enable=YES
local_enable=NO
write_enable=YES
anon_mkdir_write_enable=YES
anon_other_write_enable=YES
ftp_username=bin
nopriv_user=nobody
`
	pub := filepath.Join(root, "pub")
	for _, err := range []error{os.Chmod(dir, 0o755), os.MkdirAll(pub, 0o755), os.Chmod(pub, 0o777), os.Mkdir(empty, 0o555), os.WriteFile(file, []byte(config), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, file)
	cmd.SysProcAttr = tied(true)
	cmd.Stdin = os.Stderr // where it says what is wrong with its configuration
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // each session is a process
		_ = cmd.Wait()
	})
	await(t, "vsftpd listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return address
}
