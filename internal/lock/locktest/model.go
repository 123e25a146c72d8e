package locktest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Verb is the command of an operation.
type Verb string

// The verbs of the model.
const (
	MKD Verb = "MKD"
	RMD Verb = "RMD"
)

// Result is the reply to an operation.
type Result string

// The results. An operation with an unknown result may take effect at any time after its call, or never: give it a
// Return after everything else (math.MaxInt64).
const (
	Done    Result = "done"    // 257 or 250
	Refused Result = "refused" // 550: for MKD another client holds the lock; for RMD the client does not hold it
	Queued  Result = "queued"  // 550 of MKD because others wait for the lock, which may be held or free
	Unknown Result = "unknown" // no reply arrived
)

// Input is the Input of a porcupine.Operation: an operation on one lock. Clients with the same Owner may release each other's locks; it
// must not be empty or contain white space.
type Input struct {
	Verb   Verb
	Name   lock.Name
	Owner  string
	Shared bool // of MKD: the client would hold it together with others
}

// Output is the Output of a porcupine.Operation. Token is that of a lock which was acquired; 0 if it is not known.
type Output struct {
	Result Result
	Token  lock.Token
}

// held is the state of the model: of one lock, or with a limit of all locks directly below one directory.
type held struct {
	holds string     // lines of name, owner and share, sorted; "": free
	token lock.Token // the last that was seen
}

// Model describes the replies of a lock if only RMD ends a hold (no age, no break) and no client acquires a lock that it holds already. It
// checks each name separately. Tokens that are known must grow from hold to hold.
func Model() porcupine.Model {
	return model(0, func(input any) lock.Name { return input.(Input).Name })
}

// LimitModel is Model for locks with a limit: at most so many are held directly below one directory. It checks each directory separately. It
// does not check tokens: those of two names need not grow in the order of the refusals.
func LimitModel(limit int) porcupine.Model {
	return model(limit, func(input any) lock.Name { return input.(Input).Name.Parent() })
}

func model(limit int, key func(input any) lock.Name) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: partition(key),
		Init:      func() []any { return []any{held{}} },
		Step: func(state, input, output any) []any {
			return step(limit, state.(held), input.(Input), output.(Output))
		},
		DescribeOperation: func(input, output any) string {
			in, out := input.(Input), output.(Output)
			return fmt.Sprintf("%s %q by %s: %s %d", in.Verb, in.Name, in.Owner, out.Result, out.Token)
		},
	}
	return model.ToModel()
}

// step returns the states that are possible after the operation; none: the reply is wrong.
func step(limit int, s held, in Input, out Output) []any {
	after, possible := s.after(limit, in, out)
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

// after returns the state after the operation, if that can succeed.
func (s held) after(limit int, in Input, out Output) (after held, possible bool) {
	own := func(shared bool) string { return fmt.Sprintf("%s %s %v", in.Name, in.Owner, shared) }
	var lines []string
	if s.holds != "" {
		lines = strings.Split(s.holds, "\n")
	}
	if in.Verb == RMD {
		rest := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return l == own(false) || l == own(true) })
		return held{strings.Join(rest, "\n"), s.token}, len(rest) < len(lines)
	}
	possible = out.Token == 0 || out.Token > s.token || limit > 0
	names := make(map[string]bool)
	for _, l := range lines {
		fields := strings.Fields(l)
		names[fields[0]] = true
		if fields[0] == string(in.Name) && (!in.Shared || fields[2] != "true") {
			possible = false
		}
	}
	if limit > 0 && !names[string(in.Name)] && len(names) >= limit {
		possible = false
	}
	lines = append(lines, own(in.Shared))
	slices.Sort(lines)
	return held{strings.Join(lines, "\n"), max(s.token, out.Token)}, possible
}

// partition splits a history by the keys of the inputs.
func partition(key func(input any) lock.Name) func([]porcupine.Operation) [][]porcupine.Operation {
	return func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make(map[lock.Name][]porcupine.Operation)
		for _, op := range history {
			parts[key(op.Input)] = append(parts[key(op.Input)], op)
		}
		var all [][]porcupine.Operation
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			all = append(all, parts[name])
		}
		return all
	}
}
