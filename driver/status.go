package driver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/status"
)

// maxShown bounds the locks in SITE LOCKS and the status file.
const maxShown = 10_000

// sessionText returns an id as text; "" for none.
func sessionText(id lock.SessionID) string {
	if id == 0 {
		return ""
	}
	return id.String()
}

// statusFile is the content of the status file, for clients that have RETR only. It is made while it is sent. It contains
// the locks within the account's home, in JSON, so a name that is not UTF-8 contains replacement characters.
type statusFile struct {
	server  *Server
	account Account
	skip    int64 // bytes at its beginning that are not sent
}

// WriteTo implements io.WriterTo.
func (f *statusFile) WriteTo(w io.Writer) (int64, error) {
	s := f.server
	out := &skipper{w: w, skip: f.skip}
	b := bufio.NewWriterSize(out, 16<<10)
	fmt.Fprintf(b, "{\n  \"now\": %s,\n  \"locks\": [", jsonText(s.clock.Now().Wall.UTC(), ""))
	shown, more, between := 0, 0, ""
	for _, n := range s.table.Names() {
		view, ok := f.account.inView(n)
		held, isHeld := lock.Status{}, false
		if ok {
			held, isHeld = s.table.Get(n)
		}
		switch {
		case !isHeld:
			continue
		case shown == maxShown:
			more++
			continue
		}
		shown++
		if err := s.table.Valid(); err != nil { // as for SITE LOCK INFO
			return out.n, err
		}
		for _, hold := range s.statusHolds(view, held) {
			if _, err := fmt.Fprintf(b, "%s\n    %s", between, jsonText(hold, "    ")); err != nil {
				return out.n, err
			}
			between = ","
		}
	}
	if between != "" {
		b.WriteString("\n  ")
	}
	b.WriteString("]")
	if more > 0 {
		fmt.Fprintf(b, ",\n  \"more\": %d", more) // locks that are left out
	}
	b.WriteString("\n}\n")
	return out.n, b.Flush()
}

// Close implements content.
func (f *statusFile) Close() error { return nil }

// statusHolds returns the holds of one lock, with its path in the account's view.
func (s *Server) statusHolds(view string, l lock.Status) []status.Lock {
	l.Name = lock.Name(view)
	all := status.Locks([]lock.Status{l}, s.clock.Now())
	for i := range all {
		all[i].Rule = "" // its glob contains paths outside the view
	}
	return all
}

// jsonText returns a value in JSON. Its lines but the first are indented.
func jsonText(value any, indent string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent(indent, "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // JSON can represent all these values
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// skipper passes on all bytes but the first few.
type skipper struct {
	w    io.Writer
	skip int64
	n    int64 // bytes passed on
}

func (s *skipper) Write(p []byte) (int, error) {
	skipped := min(s.skip, int64(len(p)))
	s.skip -= skipped
	n, err := s.w.Write(p[skipped:])
	s.n += int64(n)
	return int(skipped) + n, err
}

// statusSize returns the length of the status file at the moment.
func (s *Server) statusSize(a Account) int64 {
	n, _ := (&statusFile{server: s, account: a}).WriteTo(io.Discard)
	return n
}

// statusInfo describes the status file.
func (s *Server) statusInfo(a Account) fs.FileInfo {
	return virtual{path.Base(s.settings.Load().StatusFile), s.statusSize(a), 0o444, s.clock.Now().Wall, ""}
}
