package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
	"golang.org/x/sys/unix"
)

// journalDisk is a file system of its own for a server's journal, in an image. Each start of the server mounts it in a mount namespace of its own,
// which ends with the process. Only root can mount it.
type journalDisk struct {
	t     *testing.T
	s     *server
	mount string
}

func onJournalDisk(t *testing.T, config string) *journalDisk {
	t.Helper()
	harness.Need(t, "mkfs.ext4")
	s := newServer(t, config)
	dir := t.TempDir()
	d := &journalDisk{t: t, s: s, mount: filepath.Join(dir, "disk")}
	image := filepath.Join(dir, "image")
	if err := errors.Join(os.Mkdir(d.mount, 0o755), os.WriteFile(image, nil, 0o600), os.Truncate(image, 48<<20)); err != nil {
		t.Fatal(err)
	}
	s.state = filepath.Join(d.mount, "state")
	s.configure(config)
	if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.mounts(t, d.mount, `mount -o loop "$1" "$0"`, image)
	s.errorsExpected = true
	return d
}

// start starts the server.
func (d *journalDisk) start() error {
	err := d.s.tryStart()
	d.s.state = d.path("state") // seen from outside
	return err
}

// path returns the path of a file of the disk outside of the server's namespace.
func (d *journalDisk) path(name string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", d.s.cmd.Process.Pid), d.mount, name)
}

// fill fills the disk.
func (d *journalDisk) fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.path("filler"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 16, 1 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			d.t.Fatal(err)
		}
	}
}

// fillWithLocks takes locks on several connections, so that several grants share a write, until each connection is refused for lack of space. It
// returns the number of locks on each.
func (d *journalDisk) fillWithLocks() map[*session]int {
	d.t.Helper()
	taken := make(map[*session]int)
	for range 16 {
		taken[d.s.session(account)] = 0
	}
	return d.onEach(taken, func(c *session, _ int) int {
		for n := 0; ; n++ {
			r, err := c.Try("MKD " + lockOf(c, n))
			if err == nil && r.Code == 257 {
				continue
			}
			if err != nil || r.Code != 452 || !strings.Contains(r.Text, "no space left") {
				d.t.Errorf("MKD %s: %v, %v", lockOf(c, n), r, err)
			}
			return n
		}
	})
}

// lockOf names a lock of a connection.
func lockOf(c *session, n int) string {
	return fmt.Sprintf("/locks/%v-%d", c.Conn.LocalAddr().(*net.TCPAddr).Port, n)
}

// onEach calls do for all connections at once, and returns the results.
func (d *journalDisk) onEach(of map[*session]int, do func(c *session, n int) int) map[*session]int {
	results := make(map[*session]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for c, n := range of {
		all.Go(func() {
			result := do(c, n)
			mu.Lock()
			defer mu.Unlock()
			results[c] = result
		})
	}
	all.Wait()
	return results
}

func TestOnAFullDiskReleasedLocksStayReleased(t *testing.T) {
	t.Parallel()
	for _, modes := range []string{"directories = false\ndurable = true", "directories = false\ndurable = false", "directories = true\ndurable = true"} {
		t.Run(modes, func(t *testing.T) {
			t.Parallel()
			d := onJournalDisk(t, "[locks]\n"+modes+"\n"+defaults)
			s := d.s
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(d.start())
			c := s.session(account)
			c.Want(257, "MKD /locks/kept")
			d.fill()
			taken := d.fillWithLocks()
			d.fill() // the space of the refused grants
			released := 0
			for _, n := range d.onEach(taken, func(c *session, n int) int {
				for i := range n {
					if r, err := c.Try("RMD " + lockOf(c, i)); err != nil || r.Code != 250 {
						t.Errorf("RMD %s: %v, %v", lockOf(c, i), r, err)
					}
				}
				return n
			}) {
				released += n
			}
			if released < 100 {
				t.Errorf("only %d locks until the disk is full", released)
			}
			must(os.Remove(d.path("filler"))) // a start needs space for a new file
			s.kill()
			must(d.start())
			c = s.session(account)
			for _, l := range s.locks() {
				if l.Name != "/locks/kept" {
					t.Errorf("held again: %+v", l)
				}
			}
			c.Want(550, "MKD /locks/kept", "held by")
			c.Want(257, "MKD /locks/again")
			s.stop()
		})
	}
}

// TestOnAFullDiskPublicationsLeaveSpaceForEnds changes a protected file until that is refused.
func TestOnAFullDiskPublicationsLeaveSpaceForEnds(t *testing.T) {
	t.Parallel()
	const rules = `
[[lock]]
match = "/www/.lock"
protects = ["/www/*"]
[[lock]]
match = "/locks/**"
[[lock]]
match = "/brief/*"
on_disconnect = "release"
grace = "0s"
`
	s := newServer(t, rules)
	d := &journalDisk{t: t, s: s, mount: t.TempDir()}
	s.state = filepath.Join(d.mount, "state")
	s.configure(rules)
	s.mounts(t, d.mount, `mount -t tmpfs -o size=400k ftplockd "$0"`)
	s.errorsExpected = true
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	writer, other, leaves := s.session(account), s.session(account), s.session(account)
	writer.Want(257, "MKD /www/.lock")
	other.Want(257, "MKD /locks/released")
	other.Want(257, "MKD /locks/broken")
	leaves.Want(257, "MKD /brief/x")
	if err := writer.Store("/www/f", []byte("x")); err != nil {
		t.Fatal(err)
	}
	d.fill()
	changes := 0
	for r, err := writer.Try("MFMT 20200101000000 /www/f"); ; r, err = writer.Try("MFMT 20200101000000 /www/f") {
		if err == nil && r.Code == 213 {
			changes++
			continue
		}
		if err != nil || r.Code != 452 || !strings.Contains(r.Text, "no space left") {
			t.Errorf("after %d changes: %v, %v", changes, r, err)
		}
		break
	}
	if changes < 100 {
		t.Errorf("only %d changes until the disk is full", changes)
	}
	other.Want(250, "RMD /locks/released")
	other.Want(550, "MKD /www/.lock", "held by")
	s.command("break", "/locks/broken")
	leaves.Conn.Close()
	harness.Await(t, "the lock of the closed session ends", func() bool { return len(s.locks()) == 1 })
	writer.Want(250, "RMD /www/.lock")
	s.stop()
}

// shutDown makes the disk fail as a removed device does: it refuses all reads and writes, and loses data that was not synced.
func (d *journalDisk) shutDown() {
	d.t.Helper()
	f, err := os.Open(d.path("."))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	const shutdown, withoutFlush = 0x8004587d, 2 // EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, withoutFlush); err != nil {
		d.t.Fatal(err)
	}
}

func TestADiskThatFailsEndsTheServerAndLosesNothing(t *testing.T) {
	t.Parallel()
	for _, directories := range []bool{false, true} {
		t.Run(fmt.Sprintf("directories=%v", directories), func(t *testing.T) {
			t.Parallel()
			d := onJournalDisk(t, fmt.Sprintf("[locks]\ndirectories = %v\n", directories)+defaults)
			s := d.s
			if err := d.start(); err != nil {
				t.Fatal(err)
			}
			c := s.session(account)
			held := make(map[string]uint64)
			for i := range 20 {
				name := fmt.Sprintf("/locks/%d", i)
				held[name] = harness.Token(c.Want(257, "MKD "+name))
			}
			d.shutDown()
			if r, err := c.Try("MKD /locks/lost"); err == nil && r.Code < 400 {
				t.Errorf("told %v", r)
			}
			s.waitExit()
			if status := s.cmd.ProcessState.ExitCode(); status != 74 {
				t.Errorf("exit status %d, want 74", status)
			}
			log := s.log.String()
			if i := strings.Index(log, "ftplockd: "); i < 0 || strings.Count(log[i:], "\n") != 1 ||
				!strings.Contains(log[i:], "state/journal: ") || !strings.Contains(log[i:], "input/output error") && !strings.Contains(log[i:], "read-only file system") || !strings.Contains(log[i:], "start ftplockd again") {
				t.Errorf("it says:\n%s", log)
			}
			if r := run(t, binary, "locks", "--config", s.config); r.status == 0 {
				t.Errorf("ftplockd locks: %+v", r)
			}
			harness.Await(t, "the disk is free", func() bool { return d.start() == nil })
			for _, l := range s.locks() {
				if l.Name == "/locks/lost" {
					continue // it may have been granted
				}
				if held[l.Name] != l.Token {
					t.Errorf("%s has token %d, want %d", l.Name, l.Token, held[l.Name])
				}
				delete(held, l.Name)
			}
			if len(held) > 0 {
				t.Errorf("lost: %v", held)
			}
			c = s.session(account)
			if next := harness.Token(c.Want(257, "MKD /locks/next")); next <= 20 {
				t.Errorf("token %d", next)
			}
		})
	}
}

// freeze makes each write to the disk wait until thaw is called, at the end of the test at the latest. Until then, SIGKILL does not end a process
// that writes.
func (d *journalDisk) freeze() (thaw func()) {
	d.t.Helper()
	f, err := os.Open(d.path("."))
	if err != nil {
		d.t.Fatal(err)
	}
	const freeze, unfreeze = 0xc0045877, 0xc0045878 // FIFREEZE, FITHAW
	if err := unix.IoctlSetInt(int(f.Fd()), freeze, 0); err != nil {
		f.Close()
		d.t.Fatal(err)
	}
	thaw = sync.OnceFunc(func() {
		if err := errors.Join(unix.IoctlSetInt(int(f.Fd()), unfreeze, 0), f.Close()); err != nil {
			d.t.Error(err)
		}
	})
	d.t.Cleanup(thaw)
	return thaw
}

func TestReadyzReportsThatNoLockCanBeGranted(t *testing.T) {
	t.Parallel()
	d := onJournalDisk(t, "[locks]\ndirectories = false\n"+withPage)
	s := d.s
	if err := d.start(); err != nil {
		t.Fatal(err)
	}
	ready := func(status int, text string) {
		t.Helper()
		if got, body := s.get("readyz"); got != status || !strings.Contains(body, text) {
			t.Errorf("readyz: %d %s", got, body)
		}
		if got, body := s.get("healthz"); got != 200 {
			t.Errorf("healthz: %d %s", got, body)
		}
	}
	c := s.session(account)
	c.Want(257, "MKD /locks/a")
	ready(200, "ready")
	d.fill()
	d.fillWithLocks()
	ready(503, "no space left on device")
	if err := os.Remove(d.path("filler")); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the journal has space again", func() bool { status, _ := s.get("readyz"); return status == 200 })

	thaw := d.freeze()
	if err := c.Send("MKD /locks/c"); err != nil { // the write of its grant hangs
		t.Error(err)
	}
	harness.Await(t, "the disk hangs", func() bool {
		status, body := s.get("readyz")
		return status == 503 && strings.Contains(body, "the disk or etcd does not answer")
	})
	if got, body := s.get("healthz"); got != 200 {
		t.Errorf("healthz: %d %s", got, body)
	}
	thaw()
	c.WantReply(257)
	harness.Await(t, "the disk works", func() bool { status, _ := s.get("readyz"); return status == 200 })
	s.stop()
}
