package hostdir_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// theLock is the name of the lock of TestEachCallOnEachStateOfAName.
const theLock = "/dir/a_lock"

// nameCalls are the calls for one name. The first nine have a column in the table.
var nameCalls = []struct {
	name string
	call func(s *scene, h lock.Hold) error
}{
	{"Make", func(s *scene, h lock.Hold) error { id, err := s.Make(s.Context(), theLock); return s.checkID(id, err) }},
	{"Make without directories", func(s *scene, h lock.Hold) error {
		s.off = true
		s.restart()
		free := s.Free(theLock)
		id, err := s.Make(s.Context(), theLock)
		if id != (lock.DirectoryID{}) || free && err != nil {
			s.Errorf("free %v; Make returns %v, %v", free, id, err)
		}
		if err := s.Check(s.Context(), theLock); err != nil {
			s.Errorf("Check returns %v", err)
		}
		return err
	}},
	{"Check", func(s *scene, h lock.Hold) error { return s.Check(s.Context(), theLock) }},
	{"Remove a released one", func(s *scene, h lock.Hold) error { _, err := s.Remove(s.Context(), h, lock.CauseRelease); return err }},
	{"Remove an expired one", func(s *scene, h lock.Hold) error {
		note, err := s.Remove(s.Context(), h, lock.CauseExpire)
		if to, ok := strings.CutPrefix(note, "left over: "); ok {
			_, err = os.Stat(s.real(to + "/f"))
		}
		return err
	}},
	{"Restore", (*scene).restored},
	{"Restore without directories", func(s *scene, h lock.Hold) error { s.off = true; s.restart(); return s.restored(h) }},
	{"Gone", (*scene).isGone},
	{"two sweeps", func(s *scene, h lock.Hold) error {
		err := s.Sweep(s.Context())
		s.clock.Advance(time.Hour)
		return errors.Join(err, s.Sweep(s.Context()))
	}},
	{"Create without directories", func(s *scene, h lock.Hold) error { // for the first file in a lock; as Make
		s.off = true
		s.restart()
		id, err := s.Create(s.Context(), theLock)
		return s.checkID(id, err)
	}},
}

var (
	errStands   = errors.New("the hold stands without a directory")
	errReplaced = errors.New("another server has taken over")
)

// checkID checks that a directory has the identity that a call returned.
func (s *scene) checkID(id lock.DirectoryID, err error) error {
	s.Helper()
	if err == nil && (id == (lock.DirectoryID{}) || s.isGone(lock.Hold{Name: theLock, Directory: id}) != nil) {
		s.Errorf("no directory has the identity %+v", id)
	}
	return err
}

func (s *scene) restored(h lock.Hold) error {
	id, gone, err := s.Restore(s.Context(), h)
	switch none := id == (lock.DirectoryID{}); {
	case err != nil:
		return err
	case gone && !none:
		return fmt.Errorf("gone, with the directory %+v", id)
	case gone:
		return lock.ErrDirectoryGone
	case none:
		return errStands
	}
	return s.checkID(id, nil)
}

func (s *scene) isGone(h lock.Hold) error {
	gone, err := s.Gone(s.Context(), h)
	if gone {
		err = errors.Join(err, lock.ErrDirectoryGone)
	}
	return err
}

// there describes the file or directory under the lock's name, and counts the directories that the server moved aside.
func (s *scene) there() (text string) {
	info, err := os.Lstat(s.real(theLock))
	entries, _ := os.ReadDir(s.real(theLock))
	switch {
	case err != nil:
		text = "nothing"
	case !info.IsDir():
		text = "no directory"
	case len(entries) > 0:
		text = "full"
	case info.Mode()&fs.ModeSticky != 0:
		text = "marked"
	default:
		text = "plain"
	}
	return text + strings.Repeat(", aside", len(s.leftovers()))
}

// word is the result of a call. It checks what a client may see of the error.
func (s *scene) word(err error) string {
	s.Helper()
	if err == nil {
		return "ok"
	}
	var host *lock.HostError
	if errors.As(err, &host) {
		if time.Since(host.Since).Round(time.Minute) != time.Hour {
			s.Errorf("held since %v", host.Since)
		}
		return "host"
	}
	if strings.Contains(err.Error(), s.root) {
		s.Errorf("the error has a real path: %v", err)
	}
	for known, text := range map[error]string{
		lock.ErrNotDirectory: "file", lock.ErrNoParent: "no parent", lock.ErrDirectoryGone: "gone", lock.ErrNotEmpty: "not empty",
		errStands: "stands", errReplaced: "replaced", fs.ErrExist: "exists", syscall.EIO: "EIO",
	} {
		if errors.Is(err, known) {
			return text
		}
	}
	return err.Error()
}

// nameStates lists what a call can find under the name of a held lock. Each row has a result for each call of nameCalls. If the call changes the
// directory, the result also describes the new one. A call for a new hold finds a directory that a crash left.
var nameStates = []struct {
	state  string
	system func(f *faulty)              // the file system
	change func(s *scene, h *lock.Hold) // what happens to the directory of the lock
	want   string
}{
	{"as it was made", nil, nil,
		"ok | ok > nothing | ok > nothing | ok > nothing | ok > nothing | ok | ok | ok | ok > nothing"},
	{"with a file in it", nil, func(s *scene, _ *lock.Hold) { s.write(theLock + "/f") },
		"ok > marked, aside | ok > nothing, aside | ok > nothing, aside | not empty | ok > nothing, aside | ok | ok | ok | ok > nothing, aside"},
	{"removed", nil, func(s *scene, _ *lock.Hold) { s.rmdir(theLock) },
		"ok > marked | ok | ok | gone | gone | ok > marked | ok > marked | gone | ok"},
	{"replaced", nil, func(s *scene, _ *lock.Hold) { s.replace(theLock) },
		"host | exists | host | gone | gone | gone | gone | gone | ok > nothing"},
	{"replaced, with a file in it", nil, func(s *scene, _ *lock.Hold) { s.replace(theLock); s.write(theLock + "/f") },
		"host | exists | host | gone | gone | gone | gone | gone | ok"},
	{"replaced by a backup", nil, func(s *scene, _ *lock.Hold) { s.replace(theLock); s.mark(theLock, os.Getuid()) },
		"ok | ok > nothing | ok > nothing | gone | gone | ok | ok | gone | ok > nothing"},
	{"replaced by another user's with the same bit", nil, func(s *scene, _ *lock.Hold) { s.replace(theLock); s.mark(theLock, 12345) },
		"host | exists | host | gone | gone | gone | gone | gone | ok > nothing"},
	{"a file", nil, func(s *scene, _ *lock.Hold) { s.rmdir(theLock); s.write(theLock) },
		"file | file | file | gone | gone | stands | stands | gone | ok"},
	{"a link", nil, func(s *scene, _ *lock.Hold) { s.rmdir(theLock); s.check(os.Symlink("../locks", s.real(theLock))) },
		"file | file | file | gone | gone | stands | stands | gone | ok"},
	{"in a directory that was renamed", nil, func(s *scene, _ *lock.Hold) { s.rename("/dir", "/moved") },
		"no parent | no parent | ok | ok | ok | stands | stands | no parent | ok"},
	{"in a directory that is a link", nil, func(s *scene, _ *lock.Hold) { s.rename("/dir", "/moved"); s.check(os.Symlink("moved", s.real("/dir"))) },
		"no parent | no parent | ok | ok | ok | stands | stands | no parent | ok > nothing"},
	{"in a directory that is a file", nil, func(s *scene, _ *lock.Hold) { s.rename("/dir", "/moved"); s.write("/dir") },
		"no parent | no parent | ok | ok | ok | stands | stands | no parent | ok"},
	{"on a file system that is not mounted", nil, func(s *scene, _ *lock.Hold) { s.rename("/dir", "/moved"); s.mkdir("/dir") },
		"ok > marked | ok | ok | ok | ok | ok > marked | ok > marked | ok | ok"},
	{"on a file system that is not mounted, a directory instead", nil, func(s *scene, _ *lock.Hold) { s.rename("/dir", "/moved"); s.mkdir("/dir"); s.mkdir(theLock) },
		"host | exists | host | ok | ok | gone | gone | ok | ok > nothing"},
	{"of a hold without a directory", nil, func(s *scene, h *lock.Hold) { s.rmdir(theLock); h.Directory = lock.DirectoryID{} },
		"ok > marked | ok | ok | ok | ok | ok > marked | stands | ok | ok"},
	{"of a hold without a directory, made by a program", nil, func(s *scene, h *lock.Hold) { s.replace(theLock); h.Directory = lock.DirectoryID{} },
		"host | exists | host | ok | ok | stands | stands | ok | ok > nothing"},
	{"where no directory keeps its mark", func(f *faulty) { f.plain = true }, nil,
		"host | exists | host | ok > nothing | ok > nothing | ok | ok | ok | ok > nothing"},
	{"where every directory has a mark", func(f *faulty) { f.sticky = true }, nil,
		"host | exists | host | ok > nothing | ok > nothing | ok | ok | ok | ok > nothing"},
	{"where no times of birth are recorded", func(f *faulty) { f.old = true }, nil,
		"ok | ok > nothing | ok > nothing | ok > nothing | ok > nothing | ok | ok | ok | ok > nothing"},
	{"where no times of birth are recorded, replaced", func(f *faulty) { f.old = true }, func(s *scene, _ *lock.Hold) { s.rmdir(theLock); s.mkdir(theLock) },
		"host | exists | host | gone | gone | gone | gone | gone | ok > nothing"},
	{"on a disk that fails", nil, func(s *scene, _ *lock.Hold) { s.fs.lstat = syscall.EIO },
		"EIO | EIO | EIO | EIO | EIO | EIO | EIO | EIO | EIO"},
	{"in a directory that cannot be opened", nil, func(s *scene, _ *lock.Hold) { s.fs.open = func(string) error { return syscall.EIO } },
		"EIO | EIO | EIO | EIO | EIO | EIO | EIO | EIO | ok"},
}

func (s *scene) mark(name string, owner int) {
	s.Helper()
	if owner != os.Getuid() && os.Getuid() != 0 {
		s.Skip("only root can make a directory of another user")
	}
	s.check(os.Chown(s.real(name), owner, -1))
	s.check(os.Chmod(s.real(name), 0o755|fs.ModeSticky))
}

// always permits any number of changes.
const always = 100

func TestEachCallOnEachStateOfAName(t *testing.T) {
	for _, c := range nameStates {
		t.Run(c.state, func(t *testing.T) {
			// result prepares the state and makes the call. It returns the result, and what there describes before and after the call. The server is
			// replaced after that many changes.
			result := func(call func(*scene, lock.Hold) error, changes int) (word, before, after string, refused bool) {
				s := newScene(t)
				if c.system != nil {
					c.system(s.fs)
				}
				s.mkdir("/dir")
				h := s.acquire(theLock)
				if clear(s.held); c.change != nil {
					c.change(s, &h)
				}
				hourAgo := time.Now().Add(-time.Hour)
				_ = os.Chtimes(s.real(theLock), hourAgo, hourAgo)
				s.valid = func() error {
					if changes--; changes < 0 {
						refused = true
						return errReplaced
					}
					return nil
				}
				s.restart()
				before = s.there()
				word = s.word(call(s, h))
				after = s.there()
				if names, _ := os.ReadDir(s.real("/dir")); len(names) > 1 {
					t.Errorf("left in the directory above: %v", names)
				}
				return word, before, after, refused
			}
			want := strings.Split(c.want, " | ")
			want = append(want, want[0])
			for i, one := range nameCalls {
				word, before, after, _ := result(one.call, always)
				if after != before {
					word += " > " + after
				}
				if word != want[i] {
					t.Errorf("%s: %s, want %s", one.name, word, want[i])
				}
				// A server that freezes between a check and a change may wake after another server took over.
				for changes := range 2 {
					word, before, after, refused := result(one.call, changes)
					if changes == 0 && after != before || before == "full" && after != before {
						t.Errorf("%s by a server that was replaced: %s > %s", one.name, before, after)
					}
					if refused && word != "replaced" && word != "stands" {
						t.Errorf("%s by a server that was replaced: %s", one.name, word)
					}
				}
			}
		})
	}
}

// A program on the host uses the directory right before the change.
func TestADirectoryThatTheHostRemovesAtTheSameMomentIsGone(t *testing.T) {
	s := newScene(t)
	vanish := func() {}
	s.valid = func() error { vanish(); return nil }
	s.restart()
	h := s.acquire("/locks/a")
	vanish = func() { s.rmdir("/locks/a") }
	if _, err := s.Remove(t.Context(), h, lock.CauseRelease); !errors.Is(err, lock.ErrDirectoryGone) {
		t.Error(err)
	}
}

func TestAClientAndAProgramOnTheHostNeverBothGetTheLock(t *testing.T) {
	s := newScene(t)
	for i := range 300 {
		name := fmt.Sprintf("/locks/%d", i)
		host := make(chan error)
		go func() { host <- os.Mkdir(s.real(name), 0o755) }()
		_, err := s.Make(t.Context(), lock.Name(name))
		if herr := <-host; (err == nil) == (herr == nil) || err != nil && !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("client: %v, host: %v", err, herr)
		}
	}
}

func TestAFileSystemWithoutTimesOfBirthIsReported(t *testing.T) {
	s := newScene(t)
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	s.restart()
	if s.WarnOfFileSystems(); log.Len() > 0 {
		t.Skipf("the file system of the test has none itself: %s", &log)
	}
	s.fs.old = true
	if s.WarnOfFileSystems(); strings.Count(log.String(), "no birth times") != 1 {
		t.Errorf("logged: %s", &log)
	}
}
