package driver

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"path"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// maxShown is how many locks SITE LOCKS and the status file show.
const maxShown = 10_000

// visibleLock is a lock under the path that an account knows it by.
type visibleLock struct {
	view   string
	status lock.Status
}

// visible lists the locks within the account's home.
func (s *Server) visible(a Account) []visibleLock {
	var all []visibleLock
	for _, status := range s.table.All() {
		if view, ok := a.inView(status.Name); ok {
			all = append(all, visibleLock{view, status})
		}
	}
	return all
}

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

// statusText is the content of the status file: for clients that can look only by RETR.
// It is in JSON, so a name that is no UTF-8 shows with replacement characters.
func (s *Server) statusText(a Account) []byte {
	now := s.clock.Now().Wall.UTC()
	document := struct {
		Now   time.Time    `json:"now"`
		Locks []statusHold `json:"locks"`
		More  int          `json:"more,omitempty"` // locks that are left out
	}{Now: now, Locks: []statusHold{}}
	all := s.visible(a)
	if len(all) > maxShown {
		document.More = len(all) - maxShown
		all = all[:maxShown]
	}
	for _, v := range all {
		for _, h := range v.status.Holds {
			hold := statusHold{
				Path: v.view, Holder: h.Owner.Account, Address: h.Owner.Address, Session: sessionText(h.Owner.Session),
				Token: uint64(h.Token), Acquired: h.Acquired.Wall.UTC(), Age: v.status.Held.Seconds(),
				Shared: h.Shared, Waiting: v.status.Waiting,
			}
			if !v.status.Never {
				expires := now.Add(v.status.Remaining)
				hold.Expires = &expires
			}
			document.Locks = append(document.Locks, hold)
		}
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		s.log.Error("could not write the status file", "err", err)
	}
	return b.Bytes()
}

// statusInfo describes the status file.
func (s *Server) statusInfo(a Account) fs.FileInfo {
	return virtual{path.Base(s.settings.Load().StatusFile), int64(len(s.statusText(a))), 0o444, s.clock.Now().Wall, ""}
}
