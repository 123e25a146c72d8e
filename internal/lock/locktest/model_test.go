package locktest

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestModel(t *testing.T) {
	op := func(call, ret int64, verb Verb, owner string, result Result) porcupine.Operation {
		return porcupine.Operation{Call: call, Return: ret, Input: Input{Verb: verb, Name: "/a", Owner: owner}, Output: Output{Result: result}}
	}
	got := func(token lock.Token, o porcupine.Operation) porcupine.Operation {
		o.Output = Output{o.Output.(Output).Result, token}
		return o
	}
	const never = math.MaxInt64
	cases := []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"one acquires and releases", []porcupine.Operation{
			op(1, 2, MKD, "ada", Done), op(3, 4, RMD, "ada", Done), op(5, 6, MKD, "ben", Done)}, true},
		{"two hold it at once", []porcupine.Operation{
			op(1, 2, MKD, "ada", Done), op(3, 4, MKD, "ben", Done)}, false},
		{"two at the same time, one wins", []porcupine.Operation{
			op(1, 4, MKD, "ada", Refused), op(2, 3, MKD, "ben", Done)}, true},
		{"refused though free", []porcupine.Operation{op(1, 2, MKD, "ada", Refused)}, false},
		{"queued though free", []porcupine.Operation{op(1, 2, MKD, "ada", Queued)}, true},
		{"somebody else's release works", []porcupine.Operation{
			op(1, 2, MKD, "ada", Done), op(3, 4, RMD, "ben", Done)}, false},
		{"somebody else's release is refused", []porcupine.Operation{
			op(1, 2, MKD, "ada", Done), op(3, 4, RMD, "ben", Refused), op(5, 6, RMD, "ada", Done)}, true},
		{"the holder's release is refused", []porcupine.Operation{
			op(1, 2, MKD, "ada", Done), op(3, 4, RMD, "ada", Refused)}, false},
		{"an unknown acquire happened", []porcupine.Operation{
			op(1, never, MKD, "ada", Unknown), op(3, 4, MKD, "ben", Refused)}, true},
		{"an unknown acquire did not happen", []porcupine.Operation{
			op(1, never, MKD, "ada", Unknown), op(3, 4, MKD, "ben", Done)}, true},
		{"an unknown acquire happened and is released", []porcupine.Operation{
			op(1, never, MKD, "ada", Unknown), op(3, 4, RMD, "ada", Done), op(5, 6, MKD, "ben", Done)}, true},
		{"an unknown release happened", []porcupine.Operation{
			op(1, 2, MKD, "ada", Done), op(3, never, RMD, "ada", Unknown), op(5, 6, MKD, "ben", Done)}, true},
		{"an unknown release frees it once only", []porcupine.Operation{
			op(1, 2, MKD, "ada", Done), op(3, never, RMD, "ada", Unknown),
			op(5, 6, MKD, "ben", Done), op(7, 8, MKD, "eve", Done)}, false},
		{"tokens grow", []porcupine.Operation{
			got(5, op(1, 2, MKD, "ada", Done)), op(3, 4, RMD, "ada", Done), got(6, op(5, 6, MKD, "ben", Done))}, true},
		{"a token comes twice", []porcupine.Operation{
			got(5, op(1, 2, MKD, "ada", Done)), op(3, 4, RMD, "ada", Done), got(5, op(5, 6, MKD, "ben", Done))}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(Model(), c.history); got != c.want {
				t.Errorf("linearizable: %v, want %v", got, c.want)
			}
		})
	}
}

func TestModelKeepsNamesApart(t *testing.T) {
	history := []porcupine.Operation{
		{Call: 1, Return: 2, Input: Input{Verb: MKD, Name: "/a", Owner: "ada"}, Output: Output{Result: Done, Token: 2}},
		{Call: 3, Return: 4, Input: Input{Verb: MKD, Name: "/b", Owner: "ben"}, Output: Output{Result: Done, Token: 1}},
	}
	if !porcupine.CheckOperations(Model(), history) {
		t.Error("two names were taken for one")
	}
}

func TestModelOfSharedLocks(t *testing.T) {
	op := func(call, ret int64, verb Verb, owner string, shared bool, result Result) porcupine.Operation {
		return porcupine.Operation{Call: call, Return: ret, Output: Output{Result: result},
			Input: Input{Verb: verb, Name: "/a", Owner: owner, Shared: shared}}
	}
	for _, c := range []struct {
		name    string
		history []porcupine.Operation
		want    bool
	}{
		{"two readers", []porcupine.Operation{op(1, 2, MKD, "ada", true, Done), op(3, 4, MKD, "ben", true, Done)}, true},
		{"a writer beside a reader", []porcupine.Operation{op(1, 2, MKD, "ada", true, Done), op(3, 4, MKD, "ben", false, Done)}, false},
		{"a reader beside a writer", []porcupine.Operation{op(1, 2, MKD, "ada", false, Done), op(3, 4, MKD, "ben", true, Done)}, false},
		{"a reader refused beside a reader", []porcupine.Operation{op(1, 2, MKD, "ada", true, Done), op(3, 4, MKD, "ben", true, Refused)}, false},
		{"a writer after the last reader", []porcupine.Operation{op(1, 2, MKD, "ada", true, Done), op(3, 4, MKD, "ben", true, Done),
			op(5, 6, RMD, "ada", false, Done), op(7, 8, RMD, "ben", false, Done), op(9, 10, MKD, "eve", false, Done)}, true},
		{"a writer before the last reader has gone", []porcupine.Operation{op(1, 2, MKD, "ada", true, Done), op(3, 4, MKD, "ben", true, Done),
			op(5, 6, RMD, "ada", false, Done), op(7, 8, MKD, "eve", false, Done)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(Model(), c.history); got != c.want {
				t.Errorf("linearizable: %v, want %v", got, c.want)
			}
		})
	}
}

func TestLimitModel(t *testing.T) {
	op := func(at int64, verb Verb, name lock.Name, owner string, result Result) porcupine.Operation {
		return porcupine.Operation{Call: at, Return: at + 1, Output: Output{Result: result}, Input: Input{Verb: verb, Name: name, Owner: owner}}
	}
	two := []porcupine.Operation{op(1, MKD, "/s/a", "ada", Done), op(3, MKD, "/s/b", "ben", Done)}
	for _, c := range []struct {
		name string
		then []porcupine.Operation
		want bool
	}{
		{"two of two", nil, true},
		{"a third", []porcupine.Operation{op(5, MKD, "/s/c", "eve", Done)}, false},
		{"a third is refused", []porcupine.Operation{op(5, MKD, "/s/c", "eve", Refused)}, true},
		{"a third after a release", []porcupine.Operation{op(5, RMD, "/s/a", "ada", Done), op(7, MKD, "/s/c", "eve", Done)}, true},
		{"refused after a release", []porcupine.Operation{op(5, RMD, "/s/a", "ada", Done), op(7, MKD, "/s/c", "eve", Refused)}, false},
		{"elsewhere", []porcupine.Operation{op(5, MKD, "/t/c", "eve", Done)}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := porcupine.CheckOperations(LimitModel(2), append(two[:2:2], c.then...)); got != c.want {
				t.Errorf("linearizable: %v, want %v", got, c.want)
			}
		})
	}
}
