package locktest

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/lock"
)

// Verb is what a client asked for.
type Verb string

// The verbs of the model.
const (
	MKD Verb = "MKD"
	RMD Verb = "RMD"
)

// Result is what the client was told.
type Result string

// The results. An operation with an unknown result may take effect at any time after its call, or never: give it a
// Return after everything else (math.MaxInt64).
const (
	Done    Result = "done"    // 257 or 250
	Refused Result = "refused" // 550: held by somebody else for MKD; not the client's for RMD
	Queued  Result = "queued"  // 550 of MKD because others wait for the lock: says nothing about its state
	Unknown Result = "unknown" // no reply arrived
)

// Input is the Input of a porcupine.Operation: an operation on one lock. Owner is who the client is in the
// sense that it may give back what this owner took; it must not be "".
type Input struct {
	Verb  Verb
	Name  lock.Name
	Owner string
}

// Output is the Output of a porcupine.Operation. Token is that of a lock which was acquired; 0 if it is not known.
type Output struct {
	Result Result
	Token  lock.Token
}

// held is the state of one lock in the model: who holds it ("": nobody), and the last token that was seen.
type held struct {
	owner string
	token lock.Token
}

// Model is what a lock looks like to its clients, if nothing else than MKD and RMD ends a hold (no age, no break)
// and nobody acquires what it holds already. Each name is checked on its own. Tokens that are known must grow from
// hold to hold.
func Model() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: partition,
		Init:      func() []any { return []any{held{}} },
		Step: func(state, input, output any) []any {
			return step(state.(held), input.(Input), output.(Output))
		},
		DescribeOperation: func(input, output any) string {
			in, out := input.(Input), output.(Output)
			return fmt.Sprintf("%s %q by %s: %s %d", in.Verb, in.Name, in.Owner, out.Result, out.Token)
		},
	}
	return model.ToModel()
}

// step returns the states that the lock can be in after the operation; none: it cannot have ended like this.
func step(s held, in Input, out Output) []any {
	after := held{owner: in.Owner, token: max(s.token, out.Token)}
	possible := s.owner == "" && (out.Token == 0 || out.Token > s.token)
	if in.Verb == RMD {
		after, possible = held{token: s.token}, s.owner == in.Owner
	}
	switch {
	case out.Result == Queued && in.Verb == MKD:
		return []any{s}
	case out.Result == Refused && !possible:
		return []any{s}
	case out.Result == Done && possible:
		return []any{after}
	case out.Result == Unknown && possible:
		return []any{s, after}
	case out.Result == Unknown:
		return []any{s}
	}
	return nil
}

func partition(history []porcupine.Operation) [][]porcupine.Operation {
	index := make(map[lock.Name]int)
	var parts [][]porcupine.Operation
	for _, op := range history {
		name := op.Input.(Input).Name
		i, ok := index[name]
		if !ok {
			i = len(parts)
			index[name] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}
