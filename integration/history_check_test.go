package integration

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// operations makes of what was told what porcupine checks.
func (h *history) operations() (all []porcupine.Operation) {
	last := make(map[string]*op)   // of each connection: the last operation that had a reply
	unsure := make(map[string]*op) // and the one that had none
	for _, o := range h.ops {
		if o.end.Ended {
			last[o.owner] = o
		} else {
			unsure[o.owner] = o
		}
	}
	for _, o := range h.ops {
		in := locktest.Deed{Verb: o.begin.Verb, Name: lock.Name(o.begin.Name), Owner: o.owner, Value: o.begin.Value, Call: o.begin.At, Return: math.MaxInt64}
		out := locktest.Answer{Result: locktest.Unknown}
		if o.end.Ended {
			in.Return = o.end.At
			out = locktest.Answer{Result: o.end.Result, Token: o.end.Token, Value: o.end.Value}
		} else if in.Verb == locktest.RETR || in.Verb == locktest.RMD {
			continue // nobody sees anything of it, but for the end of a hold, of which MayEnd tells
		}
		for _, k := range h.kills {
			if !o.end.Ended && in.Call < k.from {
				in.Return = min(in.Return, k.to) // nothing of it is left
			}
		}
		if in.Verb == locktest.MKD {
			young, old := h.young, h.old
			if o.lives > 0 {
				young, old = o.lives, o.lives
			}
			in.MayEnd, in.MustEnd = in.Call+int64(young), math.MaxInt64
			if o.end.Ended {
				in.MustEnd = in.Return + int64(old)
			}
			if lost := unsure[o.owner]; lost != nil && lost.begin.Verb == locktest.RMD && lost.begin.Name == o.begin.Name {
				in.MayEnd = min(in.MayEnd, lost.begin.At)
			}
			switch l := last[o.owner]; {
			case !o.end.Ended, l == o: // a grant that could not be delivered is undone
				in.MayEnd = in.Call
			case releasedAtEnd[o.begin.Name]:
				in.MayEnd = min(in.MayEnd, l.begin.At)
			}
		}
		all = append(all, porcupine.Operation{ClientId: o.client, Input: in, Call: in.Call, Output: out, Return: in.Return})
	}
	return all
}

// complaint says what is wrong with the history; "": nothing.
func (h *history) complaint() string { return locktest.Wrong(h.operations()) }

// counts are how many operations ended how.
func (h *history) counts() map[string]int {
	counts := make(map[string]int)
	for _, o := range h.ops {
		result := o.end.Result
		if !o.end.Ended {
			result = locktest.Unknown
		}
		counts[fmt.Sprint(o.begin.Verb, " ", result)]++
	}
	return counts
}
