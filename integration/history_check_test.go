package integration

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

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
func (h *history) complaint() string {
	all := h.operations()
	if text := tokensGrow(all); text != "" {
		return text
	}
	result, info := porcupine.CheckOperationsVerbose(locktest.LifeModel(), all, time.Minute)
	if result == porcupine.Ok {
		return ""
	}
	return fmt.Sprintf("the history of %d operations is not linearizable: %s\n%s", len(all), result, stuck(all, info))
}

// stuck shows where the history stops to make sense: of the name that it does so for, the end of the longest order
// that was found, and what was under way or began next and does not fit behind it.
func stuck(all []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		var best []porcupine.Operation
		for _, order := range orders {
			if len(order) > len(best) {
				best = order
			}
		}
		total := 0
		for _, o := range all {
			if len(best) > 0 && o.Input.(locktest.Deed).Name == best[0].Input.(locktest.Deed).Name {
				total++
			}
		}
		if len(best) < total {
			longest = best
		}
	}
	if len(longest) == 0 {
		return ""
	}
	model, in := locktest.LifeModel(), longest[0].Input.(locktest.Deed)
	var b strings.Builder
	show := func(what string, o porcupine.Operation) {
		d := o.Input.(locktest.Deed)
		ms := func(at int64) string {
			if at == math.MaxInt64 {
				return "-"
			}
			return fmt.Sprintf("%.1f", float64(at-all[0].Call)/1e6)
		}
		fmt.Fprintf(&b, "%s %s..%s %s", what, ms(o.Call), ms(o.Return), model.DescribeOperation(o.Input, o.Output))
		if d.Verb == locktest.MKD {
			fmt.Fprintf(&b, " may end %s, must end %s", ms(d.MayEnd), ms(d.MustEnd))
		}
		b.WriteByte('\n')
	}
	fitting := make(map[porcupine.Operation]bool)
	for _, o := range longest {
		fitting[o] = true
	}
	for _, o := range longest[max(0, len(longest)-12):] {
		show("fits", o)
	}
	var rest []porcupine.Operation
	for _, o := range all {
		if o.Input.(locktest.Deed).Name == in.Name && !fitting[o] {
			rest = append(rest, o)
		}
	}
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, o := range rest[:min(len(rest), 20)] {
		show("does not", o)
	}
	return b.String()
}

// tokensGrow checks over all names what the model checks for each: a grant that began when another was known has
// a greater token.
func tokensGrow(all []porcupine.Operation) string {
	type grant struct {
		call, ret int64
		token     lock.Token
	}
	var grants []grant
	for _, o := range all {
		if out := o.Output.(locktest.Answer); out.Token != 0 {
			grants = append(grants, grant{o.Call, o.Return, out.Token})
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return int(a.token) - int(b.token) })
	latest := int64(0) // the latest call so far
	for i, g := range grants {
		if i > 0 && g.token == grants[i-1].token {
			return fmt.Sprintf("token %d was given twice", g.token)
		}
		if g.ret < latest {
			return fmt.Sprintf("token %d was given before a smaller one was asked for", g.token)
		}
		latest = max(latest, g.call)
	}
	return ""
}

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
