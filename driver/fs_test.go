package driver

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The tests here use a session's file system past FTP, by afero's methods: what they promise must not depend on which
// command the library calls them for.

// fs is the file system of the client's session.
func (c *conn) fs() *client {
	c.t.Helper()
	client := c.session()
	if client == nil {
		c.t.Fatal("nobody is logged in")
	}
	// A command is under way for a moment after its reply: what a test calls meanwhile would be done for it.
	c.server.until("no command is under way", func() bool { return client.conn.Command().Verb == "" })
	return client
}

// prepared opens a passive port: without one there is no handle.
func (c *conn) prepared() {
	c.t.Helper()
	c.port()
	c.fs()
}

// deed is one call, and the error that it must return: one that matches is; nil: none.
type deed struct {
	what string
	do   func() error
	is   error
}

func attempt(t *testing.T, deeds []deed) {
	t.Helper()
	for _, d := range deeds {
		err := d.do()
		if d.is == nil && err != nil || d.is != nil && !errors.Is(err, d.is) {
			t.Errorf("%s: %v, want %v", d.what, err, d.is)
		}
	}
}

var long2020 = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

func TestTheFileSystemHasNoWayAroundTheCommands(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		s.write("/f", "old")
		s.write("/dir/g", "x")
		c := s.as("boss").fs()
		opened := func(f afero.File, err error) error {
			if f != nil {
				t.Errorf("a file was handed out: %v", f)
			}
			return err
		}
		attempt(t, []deed{
			{"Create of a file that is there", func() error { return opened(c.Create("/f")) }, fs.ErrPermission},
			{"Create of a new file", func() error { return opened(c.Create("/new")) }, fs.ErrPermission},
			{"Create of a lock's name", func() error { return opened(c.Create("/locks/a")) }, fs.ErrPermission},
			{"Open of a file", func() error { return opened(c.Open("/f")) }, fs.ErrPermission},
			{"Open of a directory", func() error { return opened(c.Open("/")) }, fs.ErrPermission},
			{"OpenFile to read", func() error { return opened(c.OpenFile("/f", os.O_RDONLY, 0)) }, fs.ErrPermission},
			{"OpenFile to write", func() error { return opened(c.OpenFile("/f", os.O_RDWR|os.O_TRUNC, 0o644)) }, fs.ErrPermission},
			{"OpenFile to create", func() error { return opened(c.OpenFile("/new", os.O_CREATE|os.O_WRONLY, 0o644)) }, fs.ErrPermission},
			{"MkdirAll of directories", func() error { return c.MkdirAll("/new/dir", 0o755) }, fs.ErrPermission},
			{"MkdirAll of a lock", func() error { return c.MkdirAll("/locks/a", 0o755) }, fs.ErrPermission},
			{"MkdirAll of what is there", func() error { return c.MkdirAll("/dir", 0o755) }, fs.ErrPermission},
			{"RemoveAll of a file", func() error { return c.RemoveAll("/f") }, fs.ErrPermission},
			{"RemoveAll of a directory", func() error { return c.RemoveAll("/dir") }, fs.ErrPermission},
			{"RemoveAll of the root", func() error { return c.RemoveAll("/") }, fs.ErrPermission},
			{"RemoveAll of nothing", func() error { return c.RemoveAll("/none") }, fs.ErrPermission},
			{"Chown", func() error { return c.Chown("/f", os.Getuid(), os.Getgid()) }, fs.ErrPermission},
		})
		s.wantContent("/f", "old")
		s.wantContent("/dir/g", "x")
		if got := strings.Join(onDisk(t, s.root), " "); got != "dir ever f gone home locks open" {
			t.Errorf("in the tree: %s", got)
		}
		if len(s.table.All()) > 0 {
			t.Errorf("locks: %v", s.table.All())
		}
		// What the library or afero would use instead, if it were there.
		if _, ok := any(c).(afero.Symlinker); ok {
			t.Error("it makes links")
		}
		if _, ok := any(c).(ftpserver.ClientDriverExtensionSymlink); ok {
			t.Error("it makes links for SITE SYMLINK")
		}
	})
}

func TestTheFileSystemTakesAndReturnsLocks(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		s.write("/dir/f", "x")
		a, b := s.as("boss").fs(), s.as("other").fs()
		attempt(t, []deed{
			{"Mkdir takes a lock", func() error { return a.Mkdir("/locks/a", 0o755) }, nil},
			{"Mkdir of a lock that is held", func() error { return b.Mkdir("/locks/a", 0o755) }, lock.ErrHeld},
			{"Mkdir of one's own lock", func() error { return a.Mkdir("/locks/a", 0o755) }, lock.ErrHeld},
			{"another session's RemoveDir", func() error { return b.RemoveDir("/locks/a") }, lock.ErrNotYours},
			{"Remove of a lock", func() error { return a.Remove("/locks/a") }, errIsLock},
			{"Rename of a lock", func() error { return a.Rename("/locks/a", "/b") }, errIsLock},
			{"Rename to the name of a held lock", func() error { return a.Rename("/dir/f", "/locks/a") }, errIsLock},
			{"Rename into another's lock", func() error { return b.Rename("/dir/f", "/locks/a/f") }, fs.ErrPermission},
			{"Rename into one's own lock", func() error { return a.Rename("/dir/f", "/locks/a/f") }, nil},
			{"Rename out of it to the name of a free lock", func() error { return a.Rename("/locks/a/f", "/locks/free") }, nil},
			{"Mkdir of what a file has the name of", func() error { return b.Mkdir("/locks/free", 0o755) }, lock.ErrNotDirectory},
			{"Rename of a file with a lock's name", func() error { return a.Rename("/locks/free", "/dir/f") }, nil},
			{"Chtimes of a lock", func() error { return a.Chtimes("/locks/a", long2020, long2020) }, errIsLock},
			{"Chmod of a lock", func() error { return a.Chmod("/locks/a", 0o700) }, errIsLock},
			{"Mkdir of a lock in a directory", func() error { return b.Mkdir("/dir/b_lock", 0o755) }, nil},
			{"Remove of that directory", func() error { return a.Remove("/dir") }, syscall.EISDIR},
			{"RemoveDir of that directory", func() error { return a.RemoveDir("/dir") }, errLocksBelow},
			{"Rename of that directory", func() error { return a.Rename("/dir", "/moved") }, errLocksBelow},
			{"RemoveDir of where locks are made", func() error { return a.RemoveDir("/locks") }, errNeeded},
			{"Rename of where locks are made", func() error { return a.Rename("/gone", "/b") }, errNeeded},
			{"RemoveDir of the root", func() error { return a.RemoveDir("/") }, errRoot},
		})
		for _, n := range []lock.Name{"/locks/a", "/dir/b_lock"} {
			if !s.held(n) {
				t.Errorf("%s is not held any more", n)
			}
		}
		s.wantContent("/dir/f", "x")
		if info, err := a.Stat("/locks/a"); err != nil || !info.IsDir() || !info.ModTime().Equal(s.clock.Now().Wall) {
			t.Errorf("Stat of a lock: %v, %v", info, err)
		}
		attempt(t, []deed{
			{"RemoveDir gives a lock back", func() error { return a.RemoveDir("/locks/a") }, nil},
			{"RemoveDir of a free lock", func() error { return a.RemoveDir("/locks/a") }, lock.ErrNotHeld},
			{"Remove of a free lock", func() error { return a.Remove("/locks/a") }, fs.ErrNotExist},
			{"Mkdir takes it for another session", func() error { return b.Mkdir("/locks/a", 0o755) }, nil},
		})
	})
}

func TestTheFileSystemChangesFilesAndDirectories(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		s.write("/f", "x")
		s.write("/g", "y")
		s.write("/full/h", "z")
		c := s.as("boss").fs()
		attempt(t, []deed{
			{"Mkdir", func() error { return c.Mkdir("/dir", 0o755) }, nil},
			{"Mkdir again", func() error { return c.Mkdir("/dir", 0o755) }, fs.ErrExist},
			{"Mkdir below nothing", func() error { return c.Mkdir("/none/dir", 0o755) }, fs.ErrNotExist},
			{"Chtimes", func() error { return c.Chtimes("/f", long2020, long2020) }, nil},
			{"Chmod", func() error { return c.Chmod("/f", 0o640) }, nil},
			{"Rename", func() error { return c.Rename("/f", "/dir/f") }, nil},
			{"Rename of what has gone", func() error { return c.Rename("/f", "/dir/f") }, fs.ErrNotExist},
			{"Rename that replaces a file", func() error { return c.Rename("/dir/f", "/g") }, nil},
			{"Rename into itself", func() error { return c.Rename("/dir", "/dir/sub") }, errIntoItself},
			{"Remove of a directory", func() error { return c.Remove("/dir") }, syscall.EISDIR},
			{"RemoveDir of a file", func() error { return c.RemoveDir("/g") }, errNotDir},
			{"RemoveDir of a full directory", func() error { return c.RemoveDir("/full") }, syscall.ENOTEMPTY},
			{"RemoveDir", func() error { return c.RemoveDir("/dir") }, nil},
		})
		info, err := c.Stat("/g")
		if err != nil || info.Mode() != 0o640 || !info.ModTime().Equal(long2020) || info.Size() != 1 {
			t.Errorf("Stat: %v, %v", info, err)
		}
		s.wantContent("/g", "x")
		attempt(t, []deed{
			{"Remove", func() error { return c.Remove("/g") }, nil},
			{"Stat of what has gone", func() error { _, err := c.Stat("/g"); return err }, fs.ErrNotExist},
		})
		if c.Name() == "" {
			t.Error("it has no name")
		}
	})
}

// Only permission bits can be set, however they are written.
func TestTheFileSystemRefusesSetIDBits(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	s.mkdir("/dir")
	c := s.as("boss").fs()
	for _, mode := range []fs.FileMode{
		0o4755, 0o2755, 0o1777, 0o7000, fs.ModeSetuid | 0o755, fs.ModeSetgid | 0o755, fs.ModeSticky | 0o777, fs.ModeDir | 0o755, fs.ModeSymlink,
	} {
		for _, name := range []string{"/f", "/dir"} {
			if err := c.Chmod(name, mode); !errors.Is(err, errModeBits) {
				t.Errorf("%s %v: %v", name, mode, err)
			}
		}
	}
	for name, want := range map[string]fs.FileMode{"f": 0o644, "dir": fs.ModeDir | 0o755} {
		if info, err := os.Stat(filepath.Join(s.root, name)); err != nil || info.Mode() != want {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
}

func TestTheFileSystemOfAReaderChangesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		s.write("/f", "x")
		s.mkdir("/dir")
		before, err := os.Stat(filepath.Join(s.root, "f"))
		if err != nil {
			t.Fatal(err)
		}
		reader := s.as("reader")
		reader.prepared()
		c := reader.fs()
		attempt(t, []deed{
			{"Mkdir", func() error { return c.Mkdir("/new", 0o755) }, errReadOnly},
			{"RemoveDir", func() error { return c.RemoveDir("/dir") }, errReadOnly},
			{"Remove", func() error { return c.Remove("/f") }, errReadOnly},
			{"Rename of a file", func() error { return c.Rename("/f", "/g") }, errReadOnly},
			{"Rename of a directory", func() error { return c.Rename("/dir", "/g") }, errReadOnly},
			{"Chtimes", func() error { return c.Chtimes("/f", long2020, long2020) }, errReadOnly},
			{"Chmod", func() error { return c.Chmod("/f", 0o600) }, fs.ErrPermission},
			{"GetHandle to write", func() error { _, err := c.GetHandle("/f", os.O_WRONLY|os.O_TRUNC, 0); return err }, errReadOnly},
			{"GetHandle to append", func() error { _, err := c.GetHandle("/f", os.O_WRONLY|os.O_APPEND, 0); return err }, errReadOnly},
			{"GetHandle to create", func() error { _, err := c.GetHandle("/new", os.O_WRONLY|os.O_CREATE, 0); return err }, errReadOnly},
			{"Mkdir of a lock", func() error { return c.Mkdir("/locks/a", 0o755) }, nil},
			{"GetHandle to write a note", func() error { _, err := c.GetHandle("/locks/a/note", os.O_WRONLY, 0); return err }, errReadOnly},
			{"RemoveDir of a lock", func() error { return c.RemoveDir("/locks/a") }, nil},
			{"Stat", func() error { _, err := c.Stat("/f"); return err }, nil},
		})
		after, err := os.Stat(filepath.Join(s.root, "f"))
		if err != nil || !after.ModTime().Equal(before.ModTime()) || after.Mode() != before.Mode() {
			t.Errorf("the file was changed: %v, %v", after, err)
		}
		if got := strings.Join(onDisk(t, s.root), " "); got != "dir ever f gone home locks open" {
			t.Errorf("in the tree: %s", got)
		}
	})
}

func TestTheFileSystemCannotBeLeft(t *testing.T) {
	s := start(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.link(outside, "/out")
	s.link("../../../../../.."+outside, "/up")
	s.write("/f", "x")
	s.write("/home/bob/mine", "x")
	asBoss, asBob := s.as("boss"), s.as("bob")
	asBoss.prepared()
	asBob.prepared()
	boss, bob := asBoss.fs(), asBob.fs()
	from := func(depth int) string { return strings.Repeat("/..", depth) + secret }
	for _, c := range []*client{boss, bob} {
		for _, name := range []string{from(1), from(3), from(30), "/out/secret", "/up/secret", strings.TrimPrefix(from(9), "/"), "/home/.." + from(5), "/../../f", "/work/../../../f"} {
			if c == boss && strings.HasSuffix(name, "/f") {
				continue // it is boss's own
			}
			for _, d := range []deed{
				{what: "Stat", do: func() error { _, err := c.Stat(name); return err }},
				{what: "Mkdir", do: func() error { return c.Mkdir(name+"dir/new", 0o755) }},
				{what: "Remove", do: func() error { return c.Remove(name) }},
				{what: "RemoveDir", do: func() error { return c.RemoveDir(filepath.Dir(name) + "/none") }},
				{what: "Rename from there", do: func() error { return c.Rename(name, "/here") }},
				{what: "Chtimes", do: func() error { return c.Chtimes(name, long2020, long2020) }},
				{what: "Chmod", do: func() error { return c.Chmod(name, 0o600) }},
				{what: "GetHandle to read", do: func() error { _, err := c.GetHandle(name, os.O_RDONLY, 0); return err }},
				{what: "GetHandle to write", do: func() error { _, err := c.GetHandle(name+"dir/new", os.O_WRONLY, 0); return err }},
				{what: "GetAvailableSpace", do: func() error { _, err := c.GetAvailableSpace(name); return err }},
			} {
				if err := d.do(); err == nil {
					t.Errorf("%s: %s %s was done", c.account.Name, d.what, name)
				}
			}
		}
	}
	attempt(t, []deed{
		{"Rename out of the tree by a link", func() error { return boss.Rename("/f", "/out/f") }, fs.ErrPermission},
		{"the link itself may go", func() error { return boss.Remove("/out") }, nil},
	})
	if err := boss.Rename("/f", "/../../../f2"); err != nil { // the root is its own parent
		t.Error(err)
	}
	s.wantContent("/f2", "x")
	if err := bob.Rename("/mine", "/../../../yours"); err != nil {
		t.Error(err)
	}
	s.wantContent("/home/bob/yours", "x")
	if got := strings.Join(onDisk(t, outside), " "); got != "secret" {
		t.Errorf("outside of the tree: %s", got)
	}
	if info, err := os.Stat(secret); err != nil || info.Mode() != 0o644 || info.ModTime().Equal(long2020) {
		t.Errorf("the file outside was changed: %v, %v", info, err)
	}
}

// The status file is served by the server itself.
func TestTheFileSystemKeepsTheStatusFile(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	boss := s.as("boss")
	boss.prepared()
	c := boss.fs()
	attempt(t, []deed{
		{"Remove", func() error { return c.Remove("/.locks.json") }, errReserved},
		{"RemoveDir", func() error { return c.RemoveDir("/.locks.json") }, errReserved},
		{"Rename", func() error { return c.Rename("/.locks.json", "/g") }, errReserved},
		{"Rename over it", func() error { return c.Rename("/f", "/.locks.json") }, errReserved},
		{"Chtimes", func() error { return c.Chtimes("/.locks.json", long2020, long2020) }, errReserved},
		{"Chmod", func() error { return c.Chmod("/.locks.json", 0o600) }, errReserved},
		{"Mkdir", func() error { return c.Mkdir("/.locks.json", 0o755) }, fs.ErrExist},
		{"GetHandle to write", func() error { _, err := c.GetHandle("/.locks.json", os.O_WRONLY, 0); return err }, errReserved},
		{"Stat", func() error { _, err := c.Stat("/.locks.json"); return err }, nil},
	})
}

// A handle whose data connection never came publishes nothing, and moves bytes only with one.
func TestAHandleWithoutADataConnection(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	boss := s.as("boss")
	c := boss.fs()
	if h, err := c.GetHandle("/f", os.O_RDONLY, 0); h != nil || err == nil {
		t.Errorf("nothing is prepared: %v, %v", h, err)
	}
	boss.prepared()
	for _, flags := range []int{os.O_WRONLY | os.O_CREATE | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDONLY} {
		h, err := c.GetHandle("/f", flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := h.Write([]byte("new")); n > 0 || err == nil {
			t.Errorf("flags %x: %d bytes were written, %v", flags, n, err)
		}
		if n, err := h.Read(make([]byte, 10)); n > 0 || err == nil {
			t.Errorf("flags %x: %d bytes were read, %v", flags, n, err)
		}
		if at, err := h.Seek(7, 0); at != 7 || err != nil {
			t.Errorf("flags %x: Seek: %d, %v", flags, at, err)
		}
		if err := h.Close(); err == nil {
			t.Errorf("flags %x: it ended well", flags)
		}
	}
	s.wantContent("/f", "old")
	if _, err := c.GetHandle("/none", os.O_RDONLY, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing there: %v", err)
	}
	if _, err := c.GetHandle("/f", os.O_RDONLY, 4); err == nil {
		t.Error("beyond the end")
	}
}

func TestSpaceOfTheFileSystem(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	c := s.as("boss").fs()
	if n, err := c.GetAvailableSpace("/"); n <= 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	attempt(t, []deed{
		{"of nothing", func() error { _, err := c.GetAvailableSpace("/none"); return err }, fs.ErrNotExist},
		{"more than there is", func() error { return c.AllocateSpace(1 << 62) }, syscall.ENOSPC},
		{"a little", func() error { return c.AllocateSpace(1) }, nil},
	})
}

// Where nobody executes a command there is nobody who waits.
func TestTheFileSystemDoesNotWaitWithoutACommand(t *testing.T) {
	s := start(t, func(o *setup) {
		o.rules = []lock.Rule{{Match: "/locks/*", Contention: &lock.Contention{Wait: time.Hour}}}
	})
	a, b := s.as("phoneacc").fs(), s.as("other").fs()
	attempt(t, []deed{
		{"Mkdir", func() error { return a.Mkdir("/locks/a", 0) }, nil},
		{"Mkdir that would wait", func() error { return b.Mkdir("/locks/a", 0) }, lock.ErrHeld},
	})
	if status, _ := s.table.Get("/locks/a"); status.Waiting != 0 {
		t.Error("it waits")
	}
}
