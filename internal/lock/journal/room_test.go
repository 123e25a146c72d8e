//go:build linux

package journal

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// roomFileOf returns one that is empty, and its path.
func roomFileOf(t *testing.T, ahead int64, stores bool) (*roomFile, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	r := newRoomFile(f, 0, ahead, stores)
	t.Cleanup(func() { r.Close() })
	return r, path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestARoomFileHasWhatWasWrittenAndZerosBehind(t *testing.T) {
	for _, stores := range []bool{false, true} {
		for _, ahead := range []int64{1, 1000, 4096, 10_000, 1 << 62} {
			if ahead == 1<<62 && !stores {
				continue // no system has so much: it is refused at once, but zeros are written as far as there is a disk
			}
			t.Run(fmt.Sprintf("stores=%v/ahead=%d", stores, ahead), func(t *testing.T) {
				f, path := roomFileOf(t, ahead, stores)
				var want []byte
				for i := range 100 {
					b := bytes.Repeat([]byte{byte('a' + i%26)}, 1+i*7)
					if n, err := f.WriteAt(b, int64(len(want))); n != len(b) || err != nil {
						t.Fatal(n, err)
					}
					want = append(want, b...)
					if i == 50 { // as after a write that failed
						if err := f.Truncate(int64(len(want))); err != nil {
							t.Fatal(err)
						}
					}
					got := read(t, path)
					if !bytes.HasPrefix(got, want) || !empty(got[len(want):]) {
						t.Fatalf("after %d writes %d bytes are not %d and zeros", i+1, len(got), len(want))
					}
					if ahead < 1<<62 && i != 50 && f.window != nil != stores {
						t.Fatalf("mapped: %v", f.window != nil)
					}
				}
			})
		}
	}
}

func TestRoomIsMadeBehindWhatWasWrittenWithoutAny(t *testing.T) {
	f, path := roomFileOf(t, 1<<62, true) // which is refused
	line := bytes.Repeat([]byte("x"), 1000)
	for i := range 10 {
		if i == 5 {
			f.ahead, f.stores = 4096, false
		}
		if _, err := f.WriteAt(line, int64(i*1000)); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, path); !bytes.Equal(got[:10_000], bytes.Repeat(line, 10)) {
		t.Error("there is something else")
	}
}

func TestAWriteInRoomChangesNoLength(t *testing.T) {
	f, path := roomFileOf(t, 4096, false)
	for i := range 4 {
		if _, err := f.WriteAt(make([]byte, 1024), int64(i)*1024); err != nil {
			t.Fatal(err)
		}
		if got := len(read(t, path)); got != 4096 {
			t.Errorf("%d bytes after write %d", got, i)
		}
	}
}

// TestARoomFileOnAFullDisk: here it is a file in memory that the system does not let grow.
func TestARoomFileOnAFullDisk(t *testing.T) {
	for _, stores := range []bool{false, true} {
		fd, err := unix.MemfdCreate("full", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Skip("no files in memory here:", err)
		}
		f := newRoomFile(os.NewFile(uintptr(fd), "full"), 0, 4096, stores)
		defer f.Close()
		if err := unix.Ftruncate(fd, 10_000); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW); err != nil {
			t.Fatal(err)
		}
		line := bytes.Repeat([]byte("x"), 1000)
		for i := range 10 {
			if n, err := f.WriteAt(line, int64(i*1000)); n != len(line) || err != nil {
				t.Fatalf("stores=%v, line %d: %d, %v", stores, i, n, err)
			}
		}
		if n, err := f.WriteAt(line, 10_000); n != 0 || err == nil {
			t.Errorf("stores=%v: %d, %v behind the end of the disk", stores, n, err)
		}
		if err := f.Truncate(9000); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 9000)
		if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, bytes.Repeat([]byte("x"), 9000)) {
			t.Errorf("stores=%v: something else was read, or %v", stores, err)
		}
	}
}

// TestAStoreThatTheDiskRefusesIsWritten: the system answers a store where the file has no page with SIGBUS.
func TestAStoreThatTheDiskRefusesIsWritten(t *testing.T) {
	f, path := roomFileOf(t, 1<<16, true)
	for i, text := range []string{"first", "second", "third"} {
		if n, err := f.WriteAt([]byte(text), int64(i)*8192); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
		if i == 0 {
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := read(t, path); string(got[8192:8198]) != "second" || string(got[16384:]) != "third" {
		t.Errorf("%d bytes", len(got))
	}
}

func TestAnotherPanicOfAStoreIsOne(t *testing.T) {
	f, _ := roomFileOf(t, 4096, true)
	if _, err := f.WriteAt([]byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a bug was taken for a fault of the disk")
		}
	}()
	f.store([]byte("x"), f.from-1)
}

func TestTheRoomOfAJournalIsNoDamage(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			s := newScene(t)
			var log bytes.Buffer
			s.options = func(o *Options) { o.Durable, o.Log = durable, slog.New(slog.NewTextHandler(&log, nil)) }
			size := func() int {
				t.Helper()
				info, err := os.Stat(stateDir(s.state).journal())
				if err != nil {
					t.Fatal(err)
				}
				return int(info.Size())
			}
			store := s.mustOpen()
			token := s.acquire(store, "/a_lock", "ada")
			if size() < sceneRoom || len(s.journal()) > sceneRoom {
				t.Errorf("%d bytes for %d that are written", size(), len(s.journal()))
			}
			var seen int
			for _, err := range History(s.state, "/a_lock") { // while the server runs
				if seen++; err != nil {
					t.Error(err)
				}
			}
			if seen != 1 {
				t.Errorf("%d entries", seen)
			}
			s.crash(store)
			store = s.mustOpen()
			s.heldBy(store, "/a_lock", "ada")
			s.release(store, "/a_lock", token)
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if log.Len() > 0 {
				t.Error(log.String())
			}
			if size() != len(s.journal()) {
				t.Errorf("%d bytes are left for %d that are written", size(), len(s.journal()))
			}
		})
	}
}

// storeAndDieEnv names the state directory for TestStoreAndDie.
const storeAndDieEnv = "JOURNAL_STORE_AND_DIE"

// TestStoreAndDie is the process of the next test.
func TestStoreAndDie(t *testing.T) {
	dir := os.Getenv(storeAndDieEnv)
	if dir == "" {
		return // it is no test of its own
	}
	s := newScene(t)
	s.state = dir
	s.options = func(o *Options) { o.Durable, o.FS, o.Root = false, nil, "" }
	store := s.mustOpen()
	for i := range 100 {
		s.acquire(store, lock.Name(fmt.Sprintf("/%d_lock", i)), "ada")
	}
	if file, ok := store.log.file.(*roomFile); !ok || file.window == nil {
		t.Fatal("nothing is stored here")
	}
	if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {}
}

func TestAKilledProcessLosesNothingThatItStored(t *testing.T) {
	s := newScene(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoreAndDie$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), storeAndDieEnv+"="+s.state, "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != unix.SIGKILL {
		t.Fatalf("%v\n%s", err, out)
	}
	s.options = func(o *Options) { o.FS, o.Root = nil, "" }
	if n := len(s.records(s.mustOpen())); n != 100 {
		t.Errorf("%d of 100 locks are left", n)
	}
}

func TestWhatIsTornInTheRoomIsDropped(t *testing.T) {
	for _, c := range []struct {
		name string
		tear func(last []byte) // the last line with its newline, all of which lies before the room
	}{
		{"no newline", func(last []byte) { clear(last[30:]) }},
		{"no beginning", func(last []byte) { clear(last[:30]) }},
		{"another byte", func(last []byte) { last[20] ^= 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			store := s.mustOpen()
			s.acquire(store, "/a_lock", "ada")
			s.crash(store)
			whole := read(t, stateDir(s.state).journal())
			end := len(s.journal())
			c.tear(whole[bytes.LastIndexByte(whole[:end-1], '\n')+1 : end])
			if err := os.WriteFile(stateDir(s.state).journal(), whole, 0o600); err != nil {
				t.Fatal(err)
			}
			store = s.mustOpen()
			s.heldBy(store, "/a_lock", "ada") // the torn line says which directory it has
			s.acquire(store, "/b_lock", "ben")
			s.crash(store)
			store = s.mustOpen()
			s.heldBy(store, "/b_lock", "ben")
			s.crash(store)
		})
	}
}

// TestHistoryWhileALineIsStored has a line of which a part is still missing, and a whole one behind it.
func TestHistoryWhileALineIsStored(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.FS = nil }
	store := s.mustOpen()
	token := s.acquire(store, "/a_lock", "ada")
	s.release(store, "/a_lock", token)
	s.acquire(store, "/a_lock", "ben")
	s.crash(store)
	causes := func() (all []string) {
		for entry, err := range History(s.state, "/a_lock") {
			if err != nil {
				return append(all, "error")
			}
			all = append(all, string(entry.Cause))
		}
		return all
	}
	text := read(t, stateDir(s.state).journal())
	at := bytes.Index(text, []byte(`"release","name"`))
	clear(text[at+10 : at+30]) // the name, too
	if err := os.WriteFile(stateDir(s.state).journal(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := causes(); !slices.Equal(got, []string{"acquire"}) {
		t.Errorf("got %q", got)
	}
	// What was rotated with its room is read to its end, and the journal after it.
	old := append(text[:bytes.LastIndexByte(text[:at], '\n')+1:at], make([]byte, 5000)...)
	rotated := filepath.Join(stateDir(s.state).history(), strings.Repeat("0", 20)+".jsonl")
	if err := os.WriteFile(rotated, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := causes(); !slices.Equal(got, []string{"acquire", "acquire"}) {
		t.Errorf("with a rotated file: %q", got)
	}
	// Zeros in the midst of one are damage.
	text = []byte(strings.Replace(s.journal(), `"release","name":"/a_lock`, "\x00", 1))
	text = bytes.Replace(text, []byte(`"acquire"`), []byte("\x00\"quire\""), 1)
	if err := os.WriteFile(rotated, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := causes(); !slices.Equal(got, []string{"error"}) {
		t.Errorf("with a damaged one: %q", got)
	}
}

func TestARotatedJournalHasNoRoom(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize, o.Durable = 1000, false }
	store := s.mustOpen()
	for i := range 10 {
		name := lock.Name(fmt.Sprintf("/%d_lock", i))
		s.release(store, name, s.acquire(store, name, "ada"))
	}
	old, err := stateDir(s.state).rotated()
	if err != nil || len(old) == 0 {
		t.Fatal(old, err)
	}
	for _, path := range old {
		if b := read(t, path); len(b) == 0 || b[len(b)-1] != '\n' {
			t.Errorf("%s has %d bytes, %d of them text", filepath.Base(path), len(b), len(bytes.TrimRight(b, "\x00")))
		}
	}
}
