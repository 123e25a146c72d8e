package driver

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/spf13/afero"
)

// fs returns the file system of the client's session, when no command is under way: a call would be for that command.
func (c *conn) fs() *client {
	c.T.Helper()
	client := c.session()
	c.server.until("no command is under way", func() bool { return client.conn.Command().Verb == "" })
	return client
}

// The methods of afero.Fs that no command needs change nothing and return no file.
func TestOtherMethodsOfTheFileSystemRefuse(t *testing.T) {
	eachMode(t, func(t *testing.T, s *server) {
		s.write("/f", "old")
		s.write("/dir/g", "x")
		c := s.as("boss").fs()
		opened := func(f afero.File, err error) error {
			if f != nil {
				t.Errorf("it returned the file %v", f)
			}
			return err
		}
		for what, err := range map[string]error{
			"Create of a file that is there": opened(c.Create("/f")),
			"Create of a lock's name":        opened(c.Create("/locks/a")),
			"OpenFile to write":              opened(c.OpenFile("/f", os.O_RDWR|os.O_TRUNC, 0o644)),
			"MkdirAll of directories":        c.MkdirAll("/new/dir", 0o755),
			"MkdirAll of a lock":             c.MkdirAll("/locks/a", 0o755),
			"RemoveAll":                      c.RemoveAll("/dir"),
			"Chmod":                          c.Chmod("/f", 0o777),
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
		if _, ok := any(c).(afero.Symlinker); ok { // afero would use it
			t.Error("it can make links")
		}
	})
}
