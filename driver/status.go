package driver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/status"
)

// eachLock calls f for each of the names that is held and lies in the home, with its path in the home, until an error. After bounds.locks
// calls it only counts, and returns how many more there are. It returns an error if this server may no longer report on locks.
func (s *Server) eachLock(home string, names []lock.Name, f func(n lock.Name, view string) error) (more int, err error) {
	shown := 0
	for _, n := range names {
		view, ok := inView(home, n)
		switch {
		case !ok || !s.table.Held(n):
			continue
		case shown == s.bounds.locks:
			more++
			continue
		}
		shown++
		if err := s.table.Valid(); err != nil {
			return 0, err
		}
		if err := f(n, view); err != nil {
			return 0, err
		}
	}
	return more, nil
}

// statusFile is the content of the status file, for clients that have RETR only: the locks in the account's home, in JSON. It is generated
// while it is sent. In a name that is not UTF-8, replacement characters stand for the other bytes.
type statusFile struct {
	server *Server
	home   string // of the account
}

// WriteTo implements io.WriterTo.
func (f *statusFile) WriteTo(w io.Writer) (n int64, err error) {
	s, b := f.server, bufio.NewWriterSize(w, 16<<10)
	write := func(text string) error {
		m, err := b.WriteString(text)
		n += int64(m)
		return err
	}
	now, before, after := s.clock.Now(), "", ""
	write("{\n  \"now\": " + jsonText(now.Wall.UTC()) + ",\n  \"locks\": [") // Flush returns its error, too
	more, err := s.eachLock(f.home, s.table.Names(), func(n lock.Name, view string) error {
		l, _ := s.table.Get(n) // without holds if it has ended since
		l.Name = lock.Name(view)
		for _, l := range status.Locks([]lock.Status{l}, s.jobs, now) {
			l.Rule = "" // its glob contains paths outside the view
			if err := write(before + "\n    " + jsonText(l)); err != nil {
				return err
			}
			before, after = ",", "\n  "
		}
		return nil
	})
	if err != nil {
		return n, err
	}
	write(after + "]")
	if more > 0 {
		write(fmt.Sprintf(",\n  \"more\": %d", more)) // locks that are left out
	}
	write("\n}\n")
	return n, b.Flush()
}

// Close implements content.
func (f *statusFile) Close() error { return nil }

// jsonText returns a value as indented JSON.
func jsonText(value any) string {
	text, err := json.MarshalIndent(value, "    ", "  ")
	if err != nil {
		panic(err) // JSON can represent all these values
	}
	return string(text)
}

// statusInfo describes the status file of an account with a home, with its size now.
func (s *Server) statusInfo(home string) fs.FileInfo {
	size, _ := (&statusFile{s, home}).WriteTo(io.Discard)
	return virtual{path.Base(s.settings.Load().FTP.StatusFile), size, 0o444, s.clock.Now().Wall, ""}
}
