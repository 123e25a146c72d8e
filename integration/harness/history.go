//go:build unix

package harness

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// HistoryLocks are the locks that clients compete for. Each protects the file of its name.
var HistoryLocks = []string{"/a_lock", "/b_lock", "/c_lock"}

// releasedAtEnd has the locks whose holds may end with their connection.
var releasedAtEnd = map[string]bool{"/a_lock": true, "/c_lock": true}

// HistoryTables returns a configuration under which their holds end in many ways.
func HistoryTables(age time.Duration) string {
	return strings.ReplaceAll(`
[files]
durable = false
[[lock]]
match = "/a_lock"
max_age = "AGE"
max_idle = "0"
on_disconnect = "release"
release = "session"
protects = ["/a.tsv"]
[[lock]]
match = "/b_lock"
max_age = "AGE"
max_idle = "0"
release = "session"
protects = ["/b.tsv"]
[[lock]]
match = "/c_lock"
max_age = "AGE"
max_idle = "0"
on_disconnect = "release"
grace = "100ms"
lock_delay = "20ms"
release = "session"
protects = ["/c.tsv"]
`, "AGE", age.String())
}

// FileOf returns the file that a lock protects.
func FileOf(name string) string { return strings.TrimSuffix(name, "_lock") + ".tsv" }

// HistoryText returns the content of a file for a value: 300 equal lines, so that a partial file is detected.
func HistoryText(value int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%019d\n", value), 300) }

// Op is one operation of a client.
type Op struct {
	Seq          int // of its client, from 1
	Client       int
	Owner        string // a connection
	Verb         locktest.Verb
	Name         string
	Value        int // that is written, or was read
	Call, Return int64
	Result       locktest.Result // "": not known
	Token        lock.Token
	Nothing      bool          // the server replied that it changed nothing
	Lives        time.Duration // the age of a lock that the operation acquires; 0: that of the history
}

// Record has the operations of all clients and their results.
type Record struct {
	mu       sync.Mutex
	ops      []*Op
	failures []string
}

// Begin records the begin of an operation.
func (r *Record) Begin(o Op) *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Call = Now()
	r.ops = append(r.ops, &o)
	return &o
}

// End records the result of an operation.
func (r *Record) End(o *Op, result locktest.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Return, o.Result = Now(), result
}

// Nothing records that an operation changed nothing.
func (r *Record) Nothing(o *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Nothing = true
}

// Fail records a fault that no network explains.
func (r *Record) Fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// Ops returns all operations. Call it when the clients have ended.
func (r *Record) Ops() []*Op { return r.ops }

// Failures returns the faults that Fail recorded. Call it when the clients have ended.
func (r *Record) Failures() []string { return r.failures }

// Step sends a command of a session and records the outcome.
func (r *Record) Step(s *Session, o Op, line string) {
	s.T.Helper()
	verb, name, _ := strings.Cut(line, " ")
	o.Verb, o.Name = locktest.Verb(verb), name
	begun := r.Begin(o)
	reply, err := s.Try(line)
	switch {
	case err != nil:
		s.T.Errorf("%s: %v", line, err)
	case reply.Code < 300:
		begun.Token = lock.Token(Token(reply))
		r.End(begun, locktest.Done)
	case reply.Code >= 500:
		r.End(begun, locktest.Refused)
	}
}

// Break breaks a lock as an administrator, and records it.
func (r *Record) Break(boss *Session, o Op, name string) {
	boss.T.Helper()
	o.Verb, o.Name = locktest.BREAK, name
	begun := r.Begin(o)
	boss.Breaks(name)
	r.End(begun, locktest.Done)
}

// Upload begins an upload to the file of a lock. The returned function ends the upload and records the outcome.
func (r *Record) Upload(s *Session, o Op, name string) (finish func()) {
	s.T.Helper()
	o.Verb, o.Name = locktest.STOR, name
	begun := r.Begin(o)
	end := func(err error) {
		if err == nil {
			r.End(begun, locktest.Done)
		} else if refusedFor(err) {
			r.End(begun, locktest.Refused)
		}
	}
	data, err := s.Open("STOR " + FileOf(name))
	if refusedFor(err) {
		return func() { end(err) }
	}
	if err == nil {
		_, err = data.Write(HistoryText(o.Value))
	}
	if err != nil {
		s.T.Fatal(err)
	}
	return func() {
		data.Close()
		end(s.Done())
	}
}

// ReadAll reads all files, and records it.
func (r *Record) ReadAll(t testing.TB, s *Session) {
	t.Helper()
	for _, name := range HistoryLocks {
		o := r.Begin(Op{Client: -1, Owner: "reader", Verb: locktest.RETR, Name: name})
		content, err := s.Retrieve("RETR " + FileOf(name))
		if err == nil {
			o.Value, err = strconv.Atoi(string(content[:min(19, len(content))]))
		}
		if err != nil {
			t.Fatal(err)
		}
		r.End(o, locktest.Done)
	}
}

// Counts returns the number of operations for each verb and result.
func (r *Record) Counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[string]int)
	for _, o := range r.ops {
		switch {
		case o.Nothing:
			counts[fmt.Sprint(o.Verb, " nothing")]++
		case o.Result == "":
			counts[fmt.Sprint(o.Verb, " unknown")]++
		default:
			counts[fmt.Sprint(o.Verb, " ", o.Result)]++
		}
	}
	return counts
}

// Enough reports whether the history has at least so many operations of each kind, so that it proves something.
func (r *Record) Enough(least int) bool {
	counts := r.Counts()
	for _, kind := range []string{"MKD done", "MKD refused", "RMD done", "RMD refused", "STOR done", "STOR refused", "RETR done"} {
		if counts[kind] < least {
			return false
		}
	}
	return true
}

// Operations converts operations for porcupine. young and old are the shortest and the longest age of a lock; 0: no lock ends by its age. until
// returns the end of an operation without a known outcome.
func Operations(ops []*Op, young, old time.Duration, until func(*Op) int64) (all []porcupine.Operation) {
	last := make(map[string]*Op) // of each connection: the last operation that had a reply
	lost := make(map[string]*Op) // and an RMD that had none
	for _, o := range ops {
		switch {
		case o.Nothing:
		case o.Result != "":
			last[o.Owner] = o
		case o.Verb == locktest.RMD:
			lost[o.Owner] = o
		}
	}
	for _, o := range ops {
		in := locktest.Deed{Verb: o.Verb, Name: lock.Name(o.Name), Owner: o.Owner, Value: o.Value, Call: o.Call, Return: o.Return}
		out := locktest.Answer{Result: o.Result, Token: o.Token}
		switch {
		case o.Nothing:
			continue
		case o.Result == "" && (o.Verb == locktest.RETR || o.Verb == locktest.RMD):
			continue // nobody sees anything of it, but for the end of a hold, of which MayEnd tells
		case o.Result == "":
			out.Result = locktest.Unknown
			if in.Return = until(o); in.Return <= in.Call {
				continue
			}
		}
		switch o.Verb {
		case locktest.RETR:
			in.Value, out.Value = 0, o.Value
		case locktest.MKD:
			in.MayEnd, in.MustEnd = int64(math.MaxInt64), int64(math.MaxInt64)
			young, old := young, old
			if o.Lives > 0 {
				young, old = o.Lives, o.Lives
			}
			if young > 0 {
				in.MayEnd = in.Call + int64(young)
			}
			if old > 0 && o.Result != "" {
				in.MustEnd = in.Return + int64(old)
			}
			if l := lost[o.Owner]; l != nil && l.Name == o.Name {
				in.MayEnd = min(in.MayEnd, l.Call)
			}
			switch l := last[o.Owner]; {
			case o.Result == "", l == o: // a grant that could not be delivered is undone
				in.MayEnd = in.Call
			case releasedAtEnd[o.Name]:
				in.MayEnd = min(in.MayEnd, l.Call)
			}
		}
		all = append(all, porcupine.Operation{ClientId: o.Client, Input: in, Call: in.Call, Output: out, Return: in.Return})
	}
	return all
}
