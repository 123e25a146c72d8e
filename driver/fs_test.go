package driver

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/spf13/afero"
)

// fs is the file system of the client's session.
func (c *conn) fs() *client {
	c.t.Helper()
	client := c.session()
	// A command is under way for a moment after its reply: what a test calls meanwhile would be done for it.
	c.server.until("no command is under way", func() bool { return client.conn.Command().Verb == "" })
	return client
}

// What a session's file system promises past FTP, by afero's methods, does not depend on which command the library calls them for.
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
		for what, err := range map[string]error{
			"Create of a file that is there": opened(c.Create("/f")),
			"Create of a lock's name":        opened(c.Create("/locks/a")),
			"Open":                           opened(c.Open("/f")),
			"OpenFile to write":              opened(c.OpenFile("/f", os.O_RDWR|os.O_TRUNC, 0o644)),
			"MkdirAll of directories":        c.MkdirAll("/new/dir", 0o755),
			"MkdirAll of a lock":             c.MkdirAll("/locks/a", 0o755),
			"RemoveAll":                      c.RemoveAll("/dir"),
			"Chown":                          c.Chown("/f", os.Getuid(), os.Getgid()),
		} {
			if !errors.Is(err, fs.ErrPermission) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := c.GetHandle("/f", os.O_RDONLY, 0); !errors.Is(err, errNoData) {
			t.Errorf("GetHandle without a data connection: %v", err)
		}
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
