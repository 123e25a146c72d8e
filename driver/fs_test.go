package driver

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

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
