package locktest

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The verbs of LifeModel beside MKD and RMD.
const (
	STOR  Verb = "STOR"  // of the one file that the lock protects
	RETR  Verb = "RETR"  // of that file, with or without the lock
	BREAK Verb = "BREAK" // by an administrator: ends any hold
)

// Deed is the Input of an operation of LifeModel. Times are those of the operations. An Owner holds a name at most once,
// and sends no MKD for a lock that it holds.
type Deed struct {
	Verb         Verb
	Name         lock.Name
	Owner        string
	Value        int   // of STOR
	Call, Return int64 // those of the operation
	// Of MKD: MayEnd is the earliest moment at which the hold may be taken away, MustEnd the latest until which it may
	// be written under.
	MayEnd, MustEnd int64
}

// Answer is the Output of an operation of LifeModel. Of MKD that was done it has the token, of RETR the value.
type Answer struct {
	Result Result
	Token  lock.Token
	Value  int
}

// life is the state of a lock and of the file that it protects.
type life struct {
	owner           string // "": free
	mayEnd, mustEnd int64
	token           lock.Token // the last that was seen
	value           int
	now             int64 // later operations did not happen before this
}

// LifeModel describes the replies of a lock with a protected file if holds also end by BREAK, and by their age after MayEnd. A write is
// accepted if the writer holds the lock, and refused otherwise. A read returns the value that was written last; the files contain 0 at
// first, which no client writes. Tokens must grow from hold to hold. It checks each name separately.
func LifeModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: partition(func(input any) lock.Name { return input.(Deed).Name }),
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

// until returns the states in which an operation may find the lock that ends at the time: as it was, or taken away.
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

// refuses reports whether the operation is to be refused.
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
