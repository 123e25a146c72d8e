package locktest

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestLifeModel(t *testing.T) {
	const never = math.MaxInt64
	// A hold that is taken at 1 may be taken away from 11 on, and be written under until 12.
	op := func(call, ret int64, verb Verb, owner string, result Result, n int) porcupine.Operation {
		in := Deed{Verb: verb, Name: "/a", Owner: owner, Call: call, Return: ret, MayEnd: call + 10, MustEnd: ret + 10}
		out := Answer{Result: result}
		switch verb {
		case MKD:
			out.Token = lock.Token(n)
		case STOR:
			in.Value = n
		case RETR:
			out.Value = n
		}
		return porcupine.Operation{Call: call, Return: ret, Input: in, Output: out}
	}
	ada := op(1, 2, MKD, "ada", Done, 1)
	for _, c := range []struct {
		name string
		then []porcupine.Operation
		want bool
	}{
		{"given back and taken", []porcupine.Operation{op(3, 4, RMD, "ada", Done, 0), op(5, 6, MKD, "ben", Done, 2)}, true},
		{"taken twice", []porcupine.Operation{op(5, 6, MKD, "ben", Done, 2)}, false},
		{"taken away in time", []porcupine.Operation{op(11, 12, MKD, "ben", Done, 2)}, true},
		{"taken away too early", []porcupine.Operation{op(9, 10, MKD, "ben", Done, 2)}, false},
		{"taken away while it was asked for", []porcupine.Operation{op(9, 12, MKD, "ben", Done, 2)}, true},
		{"taken away, then released as if it stood", []porcupine.Operation{
			op(11, 12, MKD, "ben", Done, 2), op(13, 14, RMD, "ada", Done, 0)}, false},
		{"taken away, then refused", []porcupine.Operation{
			op(11, 12, MKD, "ben", Done, 2), op(13, 14, RMD, "ada", Refused, 0), op(15, 16, RMD, "ben", Done, 0)}, true},
		{"somebody else's release works", []porcupine.Operation{op(3, 4, RMD, "ben", Done, 0)}, false},
		{"somebody else's hold is ended by the end of the first", []porcupine.Operation{
			op(3, 4, RMD, "ada", Done, 0), op(5, 6, MKD, "ben", Done, 2), op(12, 13, MKD, "eve", Done, 3)}, false},
		{"the token of the last holder", []porcupine.Operation{op(11, 12, MKD, "ben", Done, 1)}, false},
		{"a refusal while it was free", []porcupine.Operation{op(3, 4, RMD, "ada", Done, 0), op(5, 6, MKD, "ben", Refused, 0)}, false},
		{"in the queue while it was free", []porcupine.Operation{op(3, 4, RMD, "ada", Done, 0), op(5, 6, MKD, "ben", Queued, 0)}, true},

		{"written and read", []porcupine.Operation{op(3, 4, STOR, "ada", Done, 7), op(5, 6, RETR, "ben", Done, 7)}, true},
		{"written and lost", []porcupine.Operation{op(3, 4, STOR, "ada", Done, 7), op(5, 6, RETR, "ben", Done, 0)}, false},
		{"read while it is written", []porcupine.Operation{op(3, 6, STOR, "ada", Done, 7), op(4, 5, RETR, "ben", Done, 0)}, true},
		{"read, then unread", []porcupine.Operation{
			op(3, 9, STOR, "ada", Done, 7), op(4, 5, RETR, "ben", Done, 7), op(6, 7, RETR, "ben", Done, 0)}, false},
		{"written without the lock", []porcupine.Operation{op(3, 4, STOR, "ben", Done, 7)}, false},
		{"written with the lock, and refused", []porcupine.Operation{op(3, 4, STOR, "ada", Refused, 7)}, false},
		{"written after it was taken away", []porcupine.Operation{
			op(11, 12, MKD, "ben", Done, 2), op(13, 14, STOR, "ada", Done, 7)}, false},
		{"written after its time", []porcupine.Operation{op(13, 14, STOR, "ada", Done, 7)}, false},
		{"refused after its time, and given back", []porcupine.Operation{
			op(10, 12, STOR, "ada", Refused, 7), op(13, 14, RMD, "ada", Done, 0)}, true},
		{"an unknown write happened", []porcupine.Operation{op(3, never, STOR, "ada", Unknown, 7), op(5, 6, RETR, "ben", Done, 7)}, true},
		{"an unknown write did not happen", []porcupine.Operation{op(3, never, STOR, "ada", Unknown, 7), op(5, 6, RETR, "ben", Done, 0)}, true},
		{"an unknown write happened after the hold", []porcupine.Operation{op(3, never, STOR, "ada", Unknown, 7),
			op(5, 6, RMD, "ada", Done, 0), op(7, 8, RETR, "ben", Done, 0), op(9, 10, RETR, "ben", Done, 7)}, false},

		{"broken and taken", []porcupine.Operation{op(3, 4, BREAK, "boss", Done, 0), op(5, 6, MKD, "ben", Done, 2)}, true},
		{"broken and given back", []porcupine.Operation{op(3, 4, BREAK, "boss", Done, 0), op(5, 6, RMD, "ada", Done, 0)}, false},
		{"broken though free", []porcupine.Operation{op(3, 4, RMD, "ada", Done, 0), op(5, 6, BREAK, "boss", Done, 0)}, false},
		{"an unknown break", []porcupine.Operation{op(3, 4, BREAK, "boss", Unknown, 0), op(5, 6, MKD, "ben", Done, 2)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(LifeModel(), append([]porcupine.Operation{ada}, c.then...)); got != c.want {
				t.Errorf("linearizable: %v, want %v", got, c.want)
			}
		})
	}
}
