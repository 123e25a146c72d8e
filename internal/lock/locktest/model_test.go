package locktest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// move is one operation of a history in a test.
type move struct {
	verb      Verb
	owner     string
	name      lock.Name
	result    Result
	shared    bool
	n         int // of MKD the token, of STOR and RETR the value
	call, ret int64
}

// moves reads a history: "MKD ada done, MKD ben /b shared refused 7 @1..4". Without a time one comes after the other, without a name
// all are of /a. What became of an unknown one may show at any later time.
func moves(t *testing.T, text string) (all []move) {
	for i, op := range strings.Split(text, ", ") {
		words := strings.Fields(op)
		s := move{verb: Verb(words[0]), owner: words[1], name: "/a", call: int64(2*i + 1), ret: int64(2*i + 2)}
		for _, word := range words[2:] {
			n, err := strconv.Atoi(word)
			switch {
			case err == nil:
				s.n = n
			case word[0] == '/':
				s.name = lock.Name(word)
			case word[0] == '@':
				if _, err := fmt.Sscanf(word, "@%d..%d", &s.call, &s.ret); err != nil {
					t.Fatal(err)
				}
			case word == "shared":
				s.shared = true
			default:
				s.result = Result(word)
			}
		}
		if s.result == Unknown {
			s.ret = math.MaxInt64
		}
		all = append(all, s)
	}
	return all
}

func TestModel(t *testing.T) {
	one, two := Model(), LimitModel(2)
	for _, c := range []struct {
		model   porcupine.Model
		history string
		want    bool
	}{
		{one, "MKD ada done, RMD ada done, MKD ben done", true},
		{one, "MKD ada done, MKD ben done", false},
		{one, "MKD ada done, MKD ben /b done", true},
		{one, "MKD ada refused @1..4, MKD ben done @2..3", true},
		{one, "MKD ada refused", false},
		{one, "MKD ada queued", true},
		{one, "MKD ada done, RMD ben done", false},
		{one, "MKD ada done, RMD ben refused, RMD ada done", true},
		{one, "MKD ada done, RMD ada refused", false},
		{one, "MKD ada unknown, MKD ben refused", true},
		{one, "MKD ada unknown, MKD ben done", true},
		{one, "MKD ada unknown, RMD ada done, MKD ben done", true},
		{one, "MKD ada done, RMD ada unknown, MKD ben done", true},
		{one, "MKD ada done, RMD ada unknown, MKD ben done, MKD eve done", false},
		{one, "MKD ada done 5, RMD ada done, MKD ben done 6", true},
		{one, "MKD ada done 5, RMD ada done, MKD ben done 5", false},
		{one, "MKD ada done 2, MKD ben /b done 1", true},

		{one, "MKD ada shared done, MKD ben shared done", true},
		{one, "MKD ada shared done, MKD ben done", false},
		{one, "MKD ada done, MKD ben shared done", false},
		{one, "MKD ada shared done, MKD ben shared refused", false},
		{one, "MKD ada shared done, MKD ben shared done, RMD ada done, RMD ben done, MKD eve done", true},
		{one, "MKD ada shared done, MKD ben shared done, RMD ada done, MKD eve done", false},

		{two, "MKD ada /s/a done, MKD ben /s/b done", true},
		{two, "MKD ada /s/a done, MKD ben /s/b done, MKD eve /s/c done", false},
		{two, "MKD ada /s/a done, MKD ben /s/b done, MKD eve /s/c refused", true},
		{two, "MKD ada /s/a done, MKD ben /s/b done, RMD ada /s/a done, MKD eve /s/c done", true},
		{two, "MKD ada /s/a done, MKD ben /s/b done, RMD ada /s/a done, MKD eve /s/c refused", false},
		{two, "MKD ada /s/a done, MKD ben /s/b done, MKD eve /t/c done", true},
	} {
		var history []porcupine.Operation
		for _, s := range moves(t, c.history) {
			history = append(history, porcupine.Operation{
				Call: s.call, Return: s.ret, Input: Input{s.verb, s.name, s.owner, s.shared}, Output: Output{s.result, lock.Token(s.n)},
			})
		}
		if got := porcupine.CheckOperations(c.model, history); got != c.want {
			t.Errorf("%s: linearizable: %v, want %v", c.history, got, c.want)
		}
	}
}

// A hold that is taken at 1 may be taken away from 11 on, and be written under until 12.
func TestLifeModel(t *testing.T) {
	for _, c := range []struct {
		then string // after "MKD ada done 1"
		want bool
	}{
		{"RMD ada done, MKD ben done 2", true},
		{"MKD ben done 2", false},
		{"MKD ben done 2 @11..12", true},
		{"MKD ben done 2 @9..10", false},
		{"MKD ben done 2 @9..12", true},
		{"MKD ben done 2 @11..12, RMD ada done @13..14", false},
		{"MKD ben done 2 @11..12, RMD ada refused @13..14, RMD ben done @15..16", true},
		{"RMD ben done", false},
		{"RMD ada done @3..4, MKD ben done 2 @5..6, MKD eve done 3 @12..13", false}, // ben's is not over
		{"MKD ben done 1 @11..12", false},
		{"RMD ada done, MKD ben refused", false},
		{"RMD ada done, MKD ben queued", true},

		{"STOR ada done 7, RETR ben done 7", true},
		{"STOR ada done 7, RETR ben done 0", false},
		{"STOR ada done 7 @3..6, RETR ben done 0 @4..5", true},
		{"STOR ada done 7 @3..9, RETR ben done 7 @4..5, RETR ben done 0 @6..7", false},
		{"STOR ben done 7", false},
		{"STOR ada refused 7", false},
		{"MKD ben done 2 @11..12, STOR ada done 7 @13..14", false},
		{"STOR ada done 7 @13..14", false},
		{"STOR ada refused 7 @10..12, RMD ada done @13..14", true},
		{"STOR ada unknown 7, RETR ben done 7", true},
		{"STOR ada unknown 7, RETR ben done 0", true},
		{"STOR ada unknown 7, RMD ada done, RETR ben done 0, RETR ben done 7", false},

		{"BREAK boss done, MKD ben done 2", true},
		{"BREAK boss done, RMD ada done", false},
		{"RMD ada done, BREAK boss done", false},
		{"BREAK boss unknown @3..4, MKD ben done 2", true},
	} {
		var history []porcupine.Operation
		for _, s := range moves(t, "MKD ada done 1, "+c.then) {
			in := Deed{Verb: s.verb, Name: s.name, Owner: s.owner, Call: s.call, Return: s.ret, MayEnd: s.call + 10, MustEnd: s.ret + 10}
			out := Answer{Result: s.result}
			switch s.verb {
			case MKD:
				out.Token = lock.Token(s.n)
			case STOR:
				in.Value = s.n
			case RETR:
				out.Value = s.n
			}
			history = append(history, porcupine.Operation{Call: s.call, Return: s.ret, Input: in, Output: out})
		}
		if got := porcupine.CheckOperations(LifeModel(), history); got != c.want {
			t.Errorf("%s: linearizable: %v, want %v", c.then, got, c.want)
		}
	}
}
