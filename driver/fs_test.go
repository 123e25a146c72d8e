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

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The tests here use a session's file system past FTP, by afero's methods: what they promise must not depend on which
// command the library calls them for.

// fs is the file system of the client's session.
func (c *conn) fs() *client {
	c.t.Helper()
	client := c.session()
	// A command is under way for a moment after its reply: what a test calls meanwhile would be done for it.
	c.server.until("no command is under way", func() bool { return client.conn.Command().Verb == "" })
	return client
}

// deed is what one call returned, and the error that it must match; nil: none.
type deed struct {
	what string
	err  error
	is   error
}

func check(t *testing.T, deeds []deed) {
	t.Helper()
	for _, d := range deeds {
		if d.is == nil && d.err != nil || d.is != nil && !errors.Is(d.err, d.is) {
			t.Errorf("%s: %v, want %v", d.what, d.err, d.is)
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
		check(t, []deed{
			{"Create of a file that is there", opened(c.Create("/f")), fs.ErrPermission},
			{"Create of a lock's name", opened(c.Create("/locks/a")), fs.ErrPermission},
			{"Open", opened(c.Open("/f")), fs.ErrPermission},
			{"OpenFile to read", opened(c.OpenFile("/f", os.O_RDONLY, 0)), fs.ErrPermission},
			{"OpenFile to write", opened(c.OpenFile("/f", os.O_RDWR|os.O_TRUNC, 0o644)), fs.ErrPermission},
			{"OpenFile to create", opened(c.OpenFile("/new", os.O_CREATE|os.O_WRONLY, 0o644)), fs.ErrPermission},
			{"MkdirAll of directories", c.MkdirAll("/new/dir", 0o755), fs.ErrPermission},
			{"MkdirAll of a lock", c.MkdirAll("/locks/a", 0o755), fs.ErrPermission},
			{"RemoveAll of a directory", c.RemoveAll("/dir"), fs.ErrPermission},
			{"RemoveAll of the root", c.RemoveAll("/"), fs.ErrPermission},
			{"Chown", c.Chown("/f", os.Getuid(), os.Getgid()), fs.ErrPermission},
			{"GetHandle without a data connection", func() error { _, err := c.GetHandle("/f", os.O_RDONLY, 0); return err }(), errNoData},
		})
		s.wantContent("/f", "old")
		s.wantContent("/dir/g", "x")
		if got := strings.Join(onDisk(t, s.root), " "); got != "dir ever f gone home locks open" || len(s.table.All()) > 0 {
			t.Errorf("in the tree: %s, locks: %v", got, s.table.All())
		}
		if _, ok := any(c).(afero.Symlinker); ok { // which afero would use
			t.Error("it makes links")
		}
	})
}

// What a command does, its method does without one, by the same rules.
func TestTheFileSystemKeepsTheRulesWithoutACommand(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		s.write("/dir/f", "x")
		a, b, reader := s.as("boss").fs(), s.as("other").fs(), s.as("reader").fs()
		stat := func(name string) error { _, err := a.Stat(name); return err }
		space := func(dir string) error { _, err := a.GetAvailableSpace(dir); return err }
		check(t, []deed{
			{"Mkdir takes a lock", a.Mkdir("/locks/a", 0o755), nil},
			{"Mkdir of a lock that is held", b.Mkdir("/locks/a", 0o755), lock.ErrHeld},
			{"another session's RemoveDir", b.RemoveDir("/locks/a"), lock.ErrNotYours},
			{"Remove of a lock", a.Remove("/locks/a"), errIsLock},
			{"Rename of a lock", a.Rename("/locks/a", "/b"), errIsLock},
			{"Rename to the name of a held lock", a.Rename("/dir/f", "/locks/a"), errIsLock},
			{"Rename into another's lock", b.Rename("/dir/f", "/locks/a/f"), fs.ErrPermission},
			{"Rename into one's own lock", a.Rename("/dir/f", "/locks/a/f"), nil},
			{"Rename out of it", a.Rename("/locks/a/f", "/dir/f"), nil},
			{"Chtimes of a lock", a.Chtimes("/locks/a", long2020, long2020), errIsLock},
			{"Chmod of a lock", a.Chmod("/locks/a", 0o700), errIsLock},
			{"Mkdir of a lock in a directory", b.Mkdir("/dir/b_lock", 0o755), nil},
			{"RemoveDir of that directory", a.RemoveDir("/dir"), errLocksBelow},
			{"Rename of that directory", a.Rename("/dir", "/moved"), errLocksBelow},
			{"RemoveDir of where locks are made", a.RemoveDir("/locks"), errNeeded},
			{"RemoveDir of the root", a.RemoveDir("/"), errRoot},
			{"RemoveDir gives a lock back", a.RemoveDir("/locks/a"), nil},
			{"RemoveDir of a free lock", a.RemoveDir("/locks/a"), lock.ErrNotHeld},
			{"Remove of a free lock", a.Remove("/locks/a"), fs.ErrNotExist},
			{"Chtimes", a.Chtimes("/dir/f", long2020, long2020), nil},
			{"Chmod", a.Chmod("/dir/f", 0o640), nil},
			{"Mkdir", a.Mkdir("/new", 0o755), nil},
			{"Mkdir again", a.Mkdir("/new", 0o755), fs.ErrExist},
			{"Rename into itself", a.Rename("/new", "/new/sub"), errIntoItself},
			{"Remove of a directory", a.Remove("/new"), syscall.EISDIR},
			{"RemoveDir of a file", a.RemoveDir("/dir/f"), errNotDir},
			{"RemoveDir", a.RemoveDir("/new"), nil},
			{"Stat", stat("/dir/f"), nil},
			{"Stat of what has gone", stat("/new"), fs.ErrNotExist},
			{"GetAvailableSpace", space("/"), nil},
			{"GetAvailableSpace of nothing", space("/none"), fs.ErrNotExist},
			{"AllocateSpace of more than there is", a.AllocateSpace(1 << 62), syscall.ENOSPC},
			{"a reader's Mkdir", reader.Mkdir("/new", 0o755), errReadOnly},
			{"a reader's Remove", reader.Remove("/dir/f"), errReadOnly},
			{"a reader's Rename", reader.Rename("/dir/f", "/g"), errReadOnly},
			{"a reader's Chtimes", reader.Chtimes("/dir/f", long2020, long2020), errReadOnly},
			{"a reader's Chmod", reader.Chmod("/dir/f", 0o600), fs.ErrPermission},
			{"the status file", a.Rename("/dir/f", "/.locks.json"), errReserved},
		})
		info, err := a.Stat("/dir/f")
		if err != nil || info.Mode() != 0o640 || !info.ModTime().Equal(long2020) || a.Name() == "" {
			t.Errorf("Stat: %v, %v", info, err)
		}
		// Only permission bits can be set, however they are written.
		for _, mode := range []fs.FileMode{0o4755, 0o2755, 0o1777, fs.ModeSetuid | 0o755, fs.ModeSetgid | 0o755, fs.ModeSticky | 0o777, fs.ModeSymlink} {
			check(t, []deed{{mode.String(), a.Chmod("/dir/f", mode), errModeBits}})
		}
	})
}

// Where nobody executes a command there is nobody who waits.
func TestTheFileSystemDoesNotWaitWithoutACommand(t *testing.T) {
	s := start(t, patient)
	a, b := s.as("phoneacc").fs(), s.as("other").fs()
	check(t, []deed{
		{"Mkdir", a.Mkdir("/locks/a", 0), nil},
		{"Mkdir that would wait", b.Mkdir("/locks/a", 0), lock.ErrHeld},
	})
	if status, _ := s.table.Get("/locks/a"); status.Waiting != 0 {
		t.Error("it waits")
	}
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
	asBoss.port() // without it there is no handle
	asBob.port()
	boss, bob := asBoss.fs(), asBob.fs()
	from := func(depth int) string { return strings.Repeat("/..", depth) + secret }
	for _, c := range []*client{boss, bob} {
		for _, name := range []string{from(1), from(30), "/out/secret", "/up/secret", strings.TrimPrefix(from(9), "/"), "/home/.." + from(5), "/../../f"} {
			if c == boss && name == "/../../f" {
				continue // it is boss's own
			}
			_, stat := c.Stat(name)
			_, read := c.GetHandle(name, os.O_RDONLY, 0)
			_, write := c.GetHandle(name+"dir/new", os.O_WRONLY, 0)
			_, space := c.GetAvailableSpace(name)
			for i, err := range []error{
				stat, read, write, space, c.Mkdir(name+"dir/new", 0o755), c.Remove(name), c.RemoveDir(filepath.Dir(name) + "/none"),
				c.Rename(name, "/here"), c.Chtimes(name, long2020, long2020), c.Chmod(name, 0o600),
			} {
				if err == nil {
					t.Errorf("%s: call %d with %s was done", c.account.Name, i, name)
				}
			}
		}
	}
	check(t, []deed{
		{"Rename out of the tree by a link", boss.Rename("/f", "/out/f"), fs.ErrPermission},
		{"the link itself may go", boss.Remove("/out"), nil},
		{"the root is its own parent", boss.Rename("/f", "/../../../f2"), nil},
		{"and so is a home", bob.Rename("/mine", "/../../../yours"), nil},
	})
	s.wantContent("/f2", "x")
	s.wantContent("/home/bob/yours", "x")
	if info, err := os.Stat(secret); err != nil || info.Mode() != 0o644 || info.ModTime().Equal(long2020) || len(onDisk(t, outside)) != 1 {
		t.Errorf("outside there is %q; %v, %v", onDisk(t, outside), info, err)
	}
}

// A handle whose data connection never came publishes nothing, and moves bytes only with one.
func TestAHandleWithoutADataConnection(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	boss := s.as("boss")
	boss.port()
	c := boss.fs()
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
	if _, err := c.GetHandle("/f", os.O_RDONLY, 4); err == nil {
		t.Error("beyond the end")
	}
}
