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

// HistoryLocks are what clients fight for. Each protects the file of its name.
var HistoryLocks = []string{"/a_lock", "/b_lock", "/c_lock"}

// releasedAtEnd are those whose holds may end with their connection.
var releasedAtEnd = map[string]bool{"/a_lock": true, "/c_lock": true}

// HistoryTables is a configuration under which their holds end in many ways.
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

// FileOf is the file that a lock protects.
func FileOf(name string) string { return strings.TrimSuffix(name, "_lock") + ".tsv" }

// HistoryText is a file that holds a value: so many lines of it, so that a part of it shows.
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
	Result       locktest.Result // "": nobody knows
	Token        lock.Token
	Nothing      bool          // the server said that it changed nothing
	Lives        time.Duration // how long a lock does that was taken then; 0: as the history says
}

// Teller is told of each operation before it begins and when it has ended.
type Teller interface {
	Begin(Op) *Op
	End(*Op, locktest.Result)
	Nothing(*Op)                     // it changed nothing, whatever stood
	Fail(format string, args ...any) // no network explains that
}

// Record is what all clients did and were told.
type Record struct {
	mu       sync.Mutex
	ops      []*Op
	failures []string
}

var _ Teller = (*Record)(nil)

// Begin implements Teller.
func (r *Record) Begin(o Op) *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Call = Now()
	r.ops = append(r.ops, &o)
	return &o
}

// End implements Teller.
func (r *Record) End(o *Op, result locktest.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Return, o.Result = Now(), result
}

// Nothing implements Teller.
func (r *Record) Nothing(o *Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Nothing = true
}

// Fail implements Teller.
func (r *Record) Fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// Told takes over what a client in another process was told: when an operation begins, and again when it has ended. seen are those of the client.
func (r *Record) Told(seen map[int]*Op, o Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before := seen[o.Seq]; before != nil {
		*before = o
		return
	}
	seen[o.Seq] = &o
	r.ops = append(r.ops, &o)
}

// Ops are all, when nobody tells any more.
func (r *Record) Ops() []*Op { return r.ops }

// Failures are what clients complained of, when nobody tells any more.
func (r *Record) Failures() []string { return r.failures }

// Step has a session do something and notes what came of it.
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

// Break has an administrator take a lock away, and notes it.
func (r *Record) Break(boss *Session, o Op, name string) {
	boss.T.Helper()
	o.Verb, o.Name = locktest.BREAK, name
	begun := r.Begin(o)
	boss.Breaks(name)
	r.End(begun, locktest.Done)
}

// Upload begins one to the file of a lock, and returns what ends it and notes what came of it.
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

// ReadAll reads the files a last time.
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

// Counts are how many operations ended how.
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

// Enough reports whether there are so many of each kind of operation that the history proves something.
func (r *Record) Enough(least int) bool {
	counts := r.Counts()
	for _, kind := range []string{"MKD done", "MKD refused", "RMD done", "RMD refused", "STOR done", "STOR refused", "RETR done"} {
		if counts[kind] < least {
			return false
		}
	}
	return true
}

// Operations makes of what was told what porcupine checks. young and old are how long a lock lives at least and at most; 0: none ends by its age. until
// is when an operation of which nobody knows what became is over.
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
