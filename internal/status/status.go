// Package status defines the JSON of locks, waiters, sessions, transfers and events. The commands of ftplockd print it, also as
// tables; the page shows it; hooks and the status file contain it.
//
// Units are part of the names: durations are in seconds. Times are in UTC in the form of RFC 3339. Tokens are numbers. A key
// keeps its meaning from version to version; new keys may appear. A name that is not UTF-8 has U+FFFD for each wrong byte, and
// a second key, such as name_encoded, has it percent-encoded.
//
// The types describe a moment and change nothing. Start reading at [Lock].
package status

import (
	"encoding/json"
	"io"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// Lock is one hold. A shared lock has one Lock for each holder.
type Lock struct {
	Name        string    `json:"name"`
	NameEncoded string    `json:"name_encoded,omitempty"`
	Holder      string    `json:"holder"` // the account
	Address     string    `json:"address,omitempty"`
	Note        string    `json:"note,omitempty"` // the text of SITE LOCK NOTE
	Session     string    `json:"session,omitempty"`
	Token       uint64    `json:"token"`
	Acquired    time.Time `json:"acquired"`
	Age         float64   `json:"age_seconds"`
	Expires     Time      `json:"expires"` // without a further sign of life; null: never
	ExpiresIn   float64   `json:"expires_in_seconds,omitempty"`
	MaxIdle     float64   `json:"max_idle_seconds,omitempty"` // 0: no limit
	Rule        string    `json:"rule,omitempty"`
	Shared      bool      `json:"shared,omitempty"`
	Waiting     int       `json:"waiting"` // the length of the queue
	Automatic   bool      `json:"automatic,omitempty"`
	Files       int       `json:"files,omitempty"`     // with automatic: how many changes its job made
	LastFile    string    `json:"last_file,omitempty"` // the last one

	LastFileEncoded string `json:"last_file_encoded,omitempty"`
}

// RefusedJob is a job that may not change the files that an automatic lock protects.
type RefusedJob struct {
	Lock        string    `json:"lock"`
	LockEncoded string    `json:"lock_encoded,omitempty"`
	Account     string    `json:"account"`
	Address     string    `json:"address"`
	Session     string    `json:"session,omitempty"`
	Since       time.Time `json:"since"`
	Reason      string    `json:"reason"`
	Report      bool      `json:"report,omitempty"` // the rule only reports: nothing is refused
}

// Owner returns the client as account@address.
func (j RefusedJob) Owner() string { return owner(j.Account, j.Address) }

// RefusedJobs returns the jobs that automatic locks refuse.
func RefusedJobs(all []job.Refused) []RefusedJob {
	list := []RefusedJob{}
	for _, j := range all {
		list = append(list, RefusedJob{
			Lock: string(j.Lock), LockEncoded: Encoded(string(j.Lock)), Account: j.Owner.Account, Address: j.Owner.Address,
			Session: j.Owner.Session.String(), Since: j.At.Wall.UTC(), Reason: j.Why.Error(), Report: j.Report,
		})
	}
	return list
}

// Time is a moment, or none: its JSON is null then.
type Time struct{ time.Time }

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.Time.MarshalJSON()
}

// Owner returns the holder as account@address.
func (l Lock) Owner() string { return owner(l.Holder, l.Address) }

// Waiter is a session in the queue for a lock.
type Waiter struct {
	Account string  `json:"account"`
	Address string  `json:"address,omitempty"`
	Session string  `json:"session,omitempty"`
	Waited  float64 `json:"waited_seconds"`
}

// Owner returns the client as account@address.
func (w Waiter) Owner() string { return owner(w.Account, w.Address) }

// Session is a logged-in client.
type Session struct {
	ID      string    `json:"id"`
	Account string    `json:"account"`
	Address string    `json:"address"`
	Opened  time.Time `json:"opened"`
	Holds   int       `json:"holds"` // locks that it acquired and that are still held
}

// Transfer is a transfer under way.
type Transfer struct {
	Session     string    `json:"session"`
	Account     string    `json:"account"`
	Address     string    `json:"address"`
	Path        string    `json:"path"`
	PathEncoded string    `json:"path_encoded,omitempty"`
	Upload      bool      `json:"upload"`
	Bytes       int64     `json:"bytes"`
	Started     time.Time `json:"started"`
}

// Event is a past event. Which fields it has depends on its kind.
type Event struct {
	Time        time.Time `json:"time"`
	Event       string    `json:"event"`
	Cause       string    `json:"cause,omitempty"`
	Lock        string    `json:"lock,omitempty"`
	LockEncoded string    `json:"lock_encoded,omitempty"`
	Token       uint64    `json:"token,omitempty"`
	Holder      string    `json:"holder,omitempty"` // account@address
	By          string    `json:"by,omitempty"`     // account@address of the client that ended the lock of another one
	Session     string    `json:"session,omitempty"`
	Account     string    `json:"account,omitempty"`
	Remote      string    `json:"remote,omitempty"`
	Path        string    `json:"path,omitempty"`
	PathEncoded string    `json:"path_encoded,omitempty"`
	Bytes       *int64    `json:"bytes,omitempty"`
	SHA256      string    `json:"sha256,omitempty"`
	Held        float64   `json:"held_seconds,omitempty"`
	Waited      float64   `json:"waited_seconds,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Automatic   bool      `json:"automatic,omitempty"`
	Note        string    `json:"note,omitempty"` // of a grant in a history: the text of SITE LOCK NOTE
}

// Server is the state of a server.
type Server struct {
	Version   string     `json:"version"`
	Started   time.Time  `json:"started"`
	State     string     `json:"state"`           // "serving", or the server's part in a cluster
	Ready     bool       `json:"ready"`           // it can grant locks
	Error     string     `json:"error,omitempty"` // the reason if it is not ready
	Locks     int        `json:"locks"`           // holds
	Waiting   int        `json:"waiting"`
	Sessions  int        `json:"sessions"`
	Transfers []Transfer `json:"transfers"`
	// RefusedJobs are the jobs that automatic locks refuse.
	RefusedJobs []RefusedJob `json:"refused_jobs,omitempty"`
}

// Locks returns the holds of some locks. jobs may be nil if none is automatic.
func Locks(all []lock.Status, jobs *job.Manager, now lock.Instant) []Lock {
	list := []Lock{}
	for _, s := range all {
		for _, h := range s.Holds {
			list = append(list, hold(s, h, jobs, now))
		}
	}
	return list
}

func hold(s lock.Status, h lock.Hold, jobs *job.Manager, now lock.Instant) Lock {
	l := Lock{
		Name: string(s.Name), NameEncoded: Encoded(string(s.Name)), Holder: h.Owner.Account, Address: h.Owner.Address, Note: h.Note, Session: h.Owner.Session.String(),
		Token: uint64(h.Token), Acquired: h.Acquired.Wall.UTC(), Age: max(now.Boot-h.Acquired.Boot, 0).Seconds(), MaxIdle: h.Rule.MaxIdle.Seconds(),
		Rule: h.Rule.Match, Shared: h.Shared, Waiting: s.Waiting,
	}
	if l.Automatic = h.Job; h.Job {
		l.setChanges(jobs.Changed(s.Name, h.Token))
		l.Session = jobs.Client(h.Owner.Session).String()
	}
	if !s.Never {
		l.Expires, l.ExpiresIn = Time{now.Wall.UTC().Add(s.Remaining)}, s.Remaining.Seconds()
	}
	return l
}

func (l *Lock) setChanges(files int, last lock.Name) {
	l.Files, l.LastFile, l.LastFileEncoded = files, string(last), Encoded(string(last))
}

// Waiters returns the queue for a lock.
func Waiters(all []lock.Queued) []Waiter {
	list := []Waiter{}
	for _, q := range all {
		list = append(list, Waiter{q.Owner.Account, q.Owner.Address, q.Owner.Session.String(), q.Since.Seconds()})
	}
	return list
}

// Sessions returns the open sessions.
func Sessions(all []lock.SessionStatus) []Session {
	list := []Session{}
	for _, s := range all {
		list = append(list, Session{s.Owner.Session.String(), s.Owner.Account, s.Owner.Address, s.Opened.Wall.UTC(), s.Holds})
	}
	return list
}

// FromEntry returns an event of a lock's history.
func FromEntry(e lock.Entry) Event {
	v := Event{
		Time: e.At.Wall.UTC(), Event: string(e.Cause), Lock: string(e.Name), LockEncoded: Encoded(string(e.Name)), Token: uint64(e.Token),
		Holder: e.Owner.String(), By: e.By.String(), Session: e.By.Session.String(), Held: e.Held.Seconds(), Automatic: e.Job,
	}
	switch e.Cause {
	case lock.CauseAcquire, lock.CauseAdopt, lock.CauseRestore:
		v.Note = e.Note
	default:
		v.Reason = e.Note
	}
	if e.File != nil {
		v.Path, v.PathEncoded, v.Bytes, v.SHA256 = string(e.File.Path), Encoded(string(e.File.Path)), &e.File.Bytes, e.File.SHA256
	}
	return v
}

// Encoded returns a name that is not UTF-8 percent-encoded, and "" for other names.
func Encoded(name string) string {
	if utf8.ValidString(name) {
		return ""
	}
	return (&url.URL{Path: name}).EscapedPath()
}

// Write writes a value as one line of JSON.
func Write(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

func owner(account, address string) string {
	if address == "" {
		return account
	}
	return account + "@" + address
}
