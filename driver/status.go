package driver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// maxShown is how many locks SITE LOCKS and the status file show.
const maxShown = 10_000

// statusHold is one hold in the status file. The names of the keys are part of what users rely on.
type statusHold struct {
	Path     string     `json:"path"`
	Holder   string     `json:"holder"`
	Address  string     `json:"address,omitempty"`
	Session  string     `json:"session,omitempty"` // as "ftplockd sessions" shows it
	Token    uint64     `json:"token"`
	Acquired time.Time  `json:"acquired"`
	Age      float64    `json:"age_seconds"`
	Expires  *time.Time `json:"expires"` // null: never
	Shared   bool       `json:"shared,omitempty"`
	Waiting  int        `json:"waiting"` // how many are in the queue
}

// sessionText is an id as people are shown it; "" for none.
func sessionText(id lock.SessionID) string {
	if id == 0 {
		return ""
	}
	return id.String()
}

// statusFile is the content of the status file: for clients that can look only by RETR. It is made while it is sent, of
// the locks within the account's home. It is in JSON, so a name that is no UTF-8 shows with replacement characters.
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
		status, held := lock.Status{}, false
		if ok {
			status, held = s.table.Get(n)
		}
		switch {
		case !held:
			continue
		case shown == maxShown:
			more++
			continue
		}
		shown++
		if err := s.table.Valid(); err != nil { // as for SITE LOCK INFO
			return out.n, err
		}
		for _, hold := range s.statusHolds(view, status) {
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

// statusHolds are the holds of one lock.
func (s *Server) statusHolds(view string, status lock.Status) (all []statusHold) {
	for _, h := range status.Holds {
		hold := statusHold{
			Path: view, Holder: h.Owner.Account, Address: h.Owner.Address, Session: sessionText(h.Owner.Session),
			Token: uint64(h.Token), Acquired: h.Acquired.Wall.UTC(), Age: status.Held.Seconds(),
			Shared: h.Shared, Waiting: status.Waiting,
		}
		if !status.Never {
			expires := s.clock.Now().Wall.UTC().Add(status.Remaining)
			hold.Expires = &expires
		}
		all = append(all, hold)
	}
	return all
}

// jsonText is a value in JSON, its lines but for the first indented.
func jsonText(value any, indent string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent(indent, "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // none of the values has a part that JSON lacks
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// skipper passes on what is written, but for so many bytes at the beginning.
type skipper struct {
	w    io.Writer
	skip int64
	n    int64 // bytes that were passed on
}

func (s *skipper) Write(p []byte) (int, error) {
	skipped := min(s.skip, int64(len(p)))
	s.skip -= skipped
	n, err := s.w.Write(p[skipped:])
	s.n += int64(n)
	return int(skipped) + n, err
}

// statusSize is how many bytes the status file has at the moment.
func (s *Server) statusSize(a Account) int64 {
	n, _ := (&statusFile{server: s, account: a}).WriteTo(io.Discard)
	return n
}

// statusInfo describes the status file.
func (s *Server) statusInfo(a Account) fs.FileInfo {
	return virtual{path.Base(s.settings.Load().StatusFile), s.statusSize(a), 0o444, s.clock.Now().Wall, ""}
}
