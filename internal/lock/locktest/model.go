package locktest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Verb is the command of an operation.
type Verb string

// The verbs of LifeModel.
const (
	MKD   Verb = "MKD"
	RMD   Verb = "RMD"
	STOR  Verb = "STOR"  // of the one file that the lock protects
	RETR  Verb = "RETR"  // of that file, with or without the lock
	BREAK Verb = "BREAK" // by an administrator: it ends any hold
)

// Result is the reply to an operation.
type Result string

// The results. An operation with an unknown result may take effect at any time after its call, or never: give it a
// Return after everything else (math.MaxInt64).
const (
	Done    Result = "done"    // 257 or 250
	Refused Result = "refused" // 550: for MKD another client holds the lock; for RMD the client does not hold it
	Queued  Result = "queued"  // 550 for MKD because other clients wait for the lock, which may be held or free
	Unknown Result = "unknown" // no reply arrived
)

// Deed is the Input of an operation of LifeModel. Clients with one Owner may release each other's locks. An Owner holds a name at most
// once, and sends no MKD for a lock that it holds.
type Deed struct {
	Verb         Verb
	Name         lock.Name
	Owner        string
	Value        int   // of STOR
	Call, Return int64 // of the operation
	// For MKD: the hold may be taken away from MayEnd on, and no write may succeed under it after MustEnd.
	MayEnd, MustEnd int64
}

// Answer is the Output of an operation of LifeModel. A successful MKD has the token, or 0 if it is not known. RETR has the value.
type Answer struct {
	Result Result
	Token  lock.Token
	Value  int
}

// life is the state of a lock and of the file that it protects.
type life struct {
	owner           string // "": free
	mayEnd, mustEnd int64
	token           lock.Token // the last one that a client received
	value           int
	now             int64 // later operations take effect at this time or later
}

// LifeModel describes the replies of a lock with a protected file if holds also end by BREAK, and by their age after MayEnd. A write is
// accepted if the writer holds the lock, and refused otherwise. A read returns the value that was written last; the files contain 0 at
// first, which no client writes. Tokens must grow from hold to hold. It checks each name separately.
func LifeModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: partition,
		Init:      func() []any { return []any{life{}} },
		Step: func(state, input, output any) []any {
			var after []any
			for _, s := range state.(life).step(input.(Deed), output.(Answer)) {
				after = append(after, s)
			}
			return after
		},
		DescribeOperation: func(input, output any) string {
			in, out := input.(Deed), output.(Answer)
			return fmt.Sprintf("%s %q %d by %s: %s %d %d", in.Verb, in.Name, in.Value, in.Owner, out.Result, out.Token, out.Value)
		},
	}
	return model.ToModel()
}

// step returns the states that are possible after the operation; none: the reply is wrong.
func (s life) step(in Deed, out Answer) (after []life) {
	if s.now > in.Return {
		return nil
	}
	for _, before := range s.until(in.Return) {
		done, possible := before.after(in, out)
		switch {
		case out.Result == Queued:
			return []life{s}
		case out.Result == Done && possible:
			after = append(after, done)
		case out.Result == Refused && before.refuses(in):
			after = append(after, before)
		case out.Result == Unknown && possible:
			after = append(after, done)
		}
	}
	if in.Verb == STOR && out.Result == Refused && s.owner == in.Owner && s.mayEnd <= in.Return {
		s.now = max(s.now, s.mayEnd) // its time is over, but it has not ended yet
		after = append(after, s)
	}
	if out.Result == Unknown {
		after = append(after, s)
	}
	return after
}

// until returns the states that an operation may find until a time: the lock as it was, or taken away.
func (s life) until(at int64) []life {
	if s.owner == "" || s.mayEnd > at {
		return []life{s}
	}
	taken := s
	taken.owner, taken.now = "", max(s.now, s.mayEnd)
	return []life{s, taken}
}

// after returns the state after the operation, if that can succeed.
func (s life) after(in Deed, out Answer) (after life, possible bool) {
	after = s
	own, inTime := s.owner == in.Owner, max(s.now, in.Call) < s.mustEnd
	switch in.Verb {
	case MKD:
		after.owner, after.mayEnd, after.mustEnd, after.token = in.Owner, in.MayEnd, in.MustEnd, max(s.token, out.Token)
		return after, s.owner == "" && (out.Token == 0 || out.Token > s.token)
	case RMD:
		after.owner = ""
		return after, own
	case STOR:
		after.value = in.Value
		return after, own && inTime
	case RETR:
		return after, s.value == out.Value
	case BREAK:
		after.owner = ""
		return after, s.owner != ""
	}
	return after, false
}

// refuses reports whether the operation must be refused.
func (s life) refuses(in Deed) bool {
	switch in.Verb {
	case MKD:
		return s.owner != ""
	case RMD, STOR:
		return s.owner != in.Owner
	case BREAK:
		return s.owner == ""
	}
	return false
}

// partition splits a history by names.
func partition(history []porcupine.Operation) [][]porcupine.Operation {
	parts := make(map[lock.Name][]porcupine.Operation)
	for _, op := range history {
		name := op.Input.(Deed).Name
		parts[name] = append(parts[name], op)
	}
	return slices.Collect(maps.Values(parts))
}
