package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// prepared has on disk /a and /d/b, to be replaced, /c, to be renamed to /d/c2, /gone, to be removed, and prepares that.
func (s *served) prepared() []Change {
	s.t.Helper()
	s.mkdir("/d")
	for _, n := range []string{"/a", "/d/b", "/c", "/gone"} {
		s.put(n, "old "+n)
	}
	changes, err := prepareChanges(s.Tree)
	if err != nil {
		s.t.Fatal(err)
	}
	return changes
}

func prepareChanges(t *Tree) ([]Change, error) {
	var changes []Change
	for _, n := range []string{"/a", "/d/b", "/d/new \"\xff\n"} {
		u, err := t.Upload(n, UploadOptions{})
		if err != nil {
			return nil, err
		}
		if _, err := u.Write([]byte("new " + n)); err != nil {
			return nil, err
		}
		changes = append(changes, Change{Name: n, Upload: u, Bytes: 5, SHA256: "abc", Note: "n\n\""})
	}
	c, err := t.Link("/c", "/d/c2")
	return append(changes, Change{Name: "/d/c2", Upload: c}, Change{Name: "/c"}, Change{Name: "/gone"}, Change{Name: "/never"}), err
}

// state says whether the host sees what was before a commit of what prepared has, or what is after it.
func (s *served) seenState() string {
	s.t.Helper()
	old := map[string]string{"/a": "old /a", "/d/b": "old /d/b", "/c": "old /c", "/gone": "old /gone"}
	done := map[string]string{"/a": "new /a", "/d/b": "new /d/b", "/d/new \"\xff\n": "new /d/new \"\xff\n", "/d/c2": "old /c"}
	got := make(map[string]string)
	for _, n := range s.hostNames() {
		if n == "/d" || strings.HasPrefix(filepath.Base(n), prefix) {
			continue
		}
		b, err := os.ReadFile(s.host(n))
		if err != nil {
			s.t.Error(err)
		}
		got[n] = string(b)
	}
	switch fmt.Sprint(got) {
	case fmt.Sprint(old):
		return "none"
	case fmt.Sprint(done):
		return "all"
	}
	return fmt.Sprintf("a mixture: %q", got)
}

func TestCommitMakesAllChanges(t *testing.T) {
	s := serve(t, Options{Durable: true})
	changes := s.prepared()
	if got := s.seenState(); got != "none" {
		t.Fatal(got)
	}
	before, err := os.Stat(s.host("/c"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit("label", changes, new(sync.Mutex)); err != nil {
		t.Fatal(err)
	}
	if got := s.seenState(); got != "all" {
		t.Error(got)
	}
	if after, err := os.Stat(s.host("/d/c2")); err != nil || !os.SameFile(before, after) {
		t.Error("a renamed file is another one", err)
	}
	s.wantClean()
	for _, c := range changes[:4] {
		if err := c.Upload.Discard(); err != nil {
			t.Error(err)
		}
		wantIs(t, c.Upload.Sync(), ErrDone)
	}
	if len(s.Redone()) > 0 {
		t.Error("nothing was redone")
	}
	s.want("/a", "new /a")
}

// However a call fails, the result is all or nothing: before the record nothing has changed and it can be tried
// again; after it Finish, or the next start, does the rest.
func TestAFailureAtAnyCallOfACommit(t *testing.T) {
	results := make(map[string]int)
	for n := 1; ; n++ {
		s := serve(t, Options{Durable: true})
		changes := s.prepared()
		calls, failing := 0, ""
		s.sys.before = func(call string) error {
			if calls++; calls == n {
				failing = call
				return unix.EIO
			}
			return nil
		}
		err := s.Commit("label", changes, new(sync.Mutex))
		s.sys.before = nil
		got := s.seenState()
		switch {
		case failing == "":
			if err != nil || got != "all" || n < 30 {
				t.Errorf("nothing fails: %v, %s, %d calls", err, got, n)
			}
			if results["none"] < 10 || results["unfinished"] < 6 || results["not durable"] != 2 {
				t.Errorf("%v", results)
			}
			s.wantClean()
			return
		case errors.Is(err, ErrUnfinished):
			results["unfinished"]++
			wantIs(t, err, unix.EIO)
			if n%2 == 0 { // the server goes on
				if err := s.Finish(new(sync.Mutex)); err != nil {
					t.Error(err)
				}
			} else {
				s.Close()
				for _, c := range changes {
					if c.Upload != nil {
						die(c.Upload)
					}
				}
				s.open(Options{})
				if err := s.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
				for _, r := range s.Redone() {
					if err := r.Forget(); err != nil {
						t.Error(err)
					}
				}
			}
			if got := s.seenState(); got != "all" {
				t.Errorf("call %d (%s): after Finish: %s", n, failing, got)
			}
			s.wantClean()
		case errors.Is(err, ErrNotDurable):
			results["not durable"]++
			if got != "all" {
				t.Errorf("call %d (%s): %s", n, failing, got)
			}
		case err == nil: // only tidying up failed
			results["tidy"]++
			if got != "all" {
				t.Errorf("call %d (%s): %s", n, failing, got)
			}
		default:
			results["none"]++
			wantIs(t, err, unix.EIO)
			if got != "none" {
				t.Errorf("call %d (%s): %s", n, failing, got)
			}
			for _, r := range s.records() {
				if strings.HasPrefix(r, "commit") {
					t.Errorf("call %d (%s): %s is left, and would be redone", n, failing, r)
				}
			}
			err := s.Commit("label", changes, new(sync.Mutex))
			if got := s.seenState(); failing != "fsync" && failing != "chmod" && failing != "stat" && (err != nil || got != "all") {
				t.Errorf("call %d (%s): again: %v, %s", n, failing, err, got)
			}
		}
	}
}

// childCommitKilledAt dies at the n-th system call of a commit.
func childCommitKilledAt() {
	t := childTree()
	t.SetOptions(0, true, 0)
	n, err := strconv.Atoi(os.Getenv("N"))
	if err != nil {
		panic(err)
	}
	changes, err := prepareChanges(t)
	if err != nil {
		panic(err)
	}
	t.sys.before = func(string) error {
		if n--; n == 0 {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		return nil
	}
	if err := t.Commit("label \xff\n", changes, new(sync.Mutex)); err != nil {
		panic(err)
	}
}

func TestAServerKilledAtAnyCallOfACommitPublishesAllOrNothing(t *testing.T) {
	results := make(map[string]int)
	for n := 1; ; n++ {
		s := serve(t, Options{})
		s.mkdir("/d")
		for _, n := range []string{"/a", "/d/b", "/c", "/gone"} {
			s.put(n, "old "+n)
		}
		cmd := child(t, "commit killed at a call", s)
		cmd.Env = append(cmd.Env, fmt.Sprint("N=", n))
		err := cmd.Run()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); err != nil && status.Signal() != unix.SIGKILL {
			t.Fatal(err)
		}
		s.Close()
		s.open(Options{}) // the next start
		got := s.seenState()
		results[got]++
		redone := s.Redone()
		if len(redone) > 0 {
			results["redone"]++
			r := redone[0]
			if got != "all" || len(redone) != 1 || r.Label != "label \xff\n" || len(r.Changes) != 7 {
				t.Errorf("call %d: %s, redone: %+v", n, got, r)
			}
			if c := r.Changes[0]; c.Name != "/a" || c.Bytes != 5 || c.SHA256 != "abc" || c.Note != "n\n\"" {
				t.Errorf("%+v", c)
			}
			if err := r.Forget(); err != nil {
				t.Error(err)
			}
		}
		if err := s.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if after := s.seenState(); after != got {
			t.Errorf("call %d: %s, and after a sweep %s", n, got, after)
		}
		s.wantClean()
		s.Close()
		if err == nil {
			break
		}
	}
	if len(results) != 3 || results["none"] < 10 || results["redone"] < 6 {
		t.Errorf("%v", results)
	}
}

func TestARedoDoesNotUndoWhatCameAfterwards(t *testing.T) {
	s := serve(t, Options{})
	changes := s.prepared()
	s.sys.before = func(call string) error {
		if call == "uncommit" {
			return unix.EIO
		}
		return nil
	}
	if err := s.Commit("x", changes, new(sync.Mutex)); err != nil {
		t.Fatal(err)
	}
	s.sys.before = nil
	s.mustUpload("/a", "newer", UploadOptions{})
	s.put("/gone", "again")
	s.Close()
	s.open(Options{})
	if len(s.Redone()) != 1 {
		t.Error("the record was left")
	}
	s.want("/a", "newer")
	s.want("/gone", "again")
}

func TestARecordThatIsNoneIsNotRedone(t *testing.T) {
	s := serve(t, Options{})
	s.put("/a", "old")
	for name, content := range map[string]string{
		commitPrefix + "x": "commit 1 \"\"\n00000000\n", commitPrefix + "y": "", writingPrefix + "z": "commit 1",
	} {
		if err := os.WriteFile(filepath.Join(s.state, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s.open(Options{})
	if got := s.records(); len(got) != 2 || len(s.Redone()) > 0 {
		t.Errorf("%q", got) // what is damaged stays for a person to look at
	}
}

func TestCommitIsOneStepForWhoeverOpensUnderTheGate(t *testing.T) {
	s := serve(t, Options{})
	s.put("/x", "0")
	s.put("/y", "0")
	var gate sync.RWMutex
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				gate.RLock()
				var got [2]string
				for i, n := range []string{"/x", "/y"} {
					d, err := s.Download(n, DownloadOptions{})
					if err != nil {
						t.Error(err)
						continue
					}
					b, _ := io.ReadAll(d)
					d.Close()
					got[i] = string(b)
				}
				gate.RUnlock()
				if got[0] != got[1] {
					t.Errorf("a mixture: %q", got)
				}
			}
		})
	}
	for i := range 100 {
		var changes []Change
		for _, n := range []string{"/x", "/y"} {
			changes = append(changes, Change{Name: n, Upload: s.begun(n, fmt.Sprint(i+1), UploadOptions{})})
		}
		if err := s.Commit("", changes, &gate); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()
}

func TestCommitRefusesWhatCannotBeInPlace(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/d/sub")
	s.mkdir("/real")
	s.link("real", "/way")
	s.put("/f", "old")
	u := s.begun("/f", "new", UploadOptions{})
	for name, want := range map[string]error{
		"/d/sub": unix.EISDIR, "/way/f": ErrMoved, "/none/f": ErrMoved, "/": ErrReserved, "/x\x00": ErrName,
	} {
		wantIs(t, s.Commit("", []Change{{Name: "/f", Upload: u}, {Name: name}}, new(sync.Mutex)), want)
	}
	s.want("/f", "old")
	moved := s.begun("/d/f", "x", UploadOptions{})
	if err := os.Rename(s.host("/d"), s.host("/e")); err != nil {
		t.Fatal(err)
	}
	s.mkdir("/d")
	wantIs(t, moved.InPlace(), ErrMoved)
	wantIs(t, s.Commit("", []Change{{Name: "/f", Upload: u}, {Name: "/d/f", Upload: moved}}, new(sync.Mutex)), ErrMoved)
	s.want("/f", "old")
	if err := errors.Join(u.InPlace(), s.Commit("", []Change{{Name: "/f", Upload: u}}, new(sync.Mutex)), moved.Discard()); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "new")
	s.wantClean()
}

func TestAFileRenamedToAndFroIsThereOnce(t *testing.T) {
	s := serve(t, Options{})
	s.put("/a", "x")
	u, err := s.Link("/a", "/a")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit("", []Change{{Name: "/a", Upload: u}, {Name: "/b"}}, new(sync.Mutex)); err != nil {
		t.Fatal(err)
	}
	s.want("/a", "x")
	s.wantClean()
}

func TestWhatIsUploadedCanBeLookedAtBeforeItIsPublished(t *testing.T) {
	s := serve(t, Options{})
	s.put("/f", "old")
	u := s.begun("/f", "abc", UploadOptions{})
	if err := u.Sync(); err != nil {
		t.Fatal(err)
	}
	size, sum, err := u.Sum()
	if size != 3 || sum != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" || err != nil {
		t.Error(size, sum, err)
	}
	when := time.Unix(1_000_000, 0)
	if err := errors.Join(u.Chtimes(when, when), u.Chmod(0o600)); err != nil {
		t.Error(err)
	}
	i, err := u.Stat()
	if err != nil || i.Name() != "f" || i.Size() != 3 || !i.ModTime().Equal(when) || i.Mode() != 0o600 {
		t.Error(i, err)
	}
	d, err := u.Download("/f", DownloadOptions{Offset: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if b, _ := io.ReadAll(d); string(b) != "bc" {
		t.Errorf("%q", b)
	}
	more := s.begun("/f", "def", UploadOptions{Append: true, Old: &Old{u}})
	none := s.begun("/f", "ghi", UploadOptions{Append: true, Old: &Old{}})
	s.want("/f", "old")
	if err := errors.Join(none.Publish(), u.Publish()); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "abc")
	if err := more.Publish(); err != nil {
		t.Fatal(err)
	}
	s.want("/f", "abcdef")
	_, err = u.Stat()
	wantIs(t, err, ErrDone)
	_, err = u.Download("/f", DownloadOptions{})
	wantIs(t, err, ErrDone)
	_, _, err = u.Sum()
	wantIs(t, err, ErrDone)
	wantIs(t, u.Chmod(0o600), ErrDone)
	wantIs(t, u.InPlace(), ErrDone)
}

func TestLinkTakesRegularFilesOnly(t *testing.T) {
	s := serve(t, Options{})
	s.mkdir("/d")
	s.put("/f", "x")
	s.link("f", "/l")
	for name, want := range map[string]error{"/d": ErrNotRegular, "/l": ErrNotRegular, "/none": fs.ErrNotExist} {
		_, err := s.Link(name, "/to")
		wantIs(t, err, want)
	}
	_, err := s.Link("/f", "/d")
	wantIs(t, err, unix.EISDIR)
	for n := 1; n < 12; n++ {
		calls := 0
		s.sys.before = func(string) error {
			if calls++; calls == n {
				return unix.EIO
			}
			return nil
		}
		u, err := s.Link("/f", "/to")
		s.sys.before = nil
		if err == nil {
			if n < 6 {
				t.Error("calls that do not fail:", n)
			}
			if err := u.Discard(); err != nil {
				t.Error(err)
			}
		}
	}
	s.wantClean()
}
