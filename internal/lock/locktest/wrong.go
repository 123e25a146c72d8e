package locktest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// CheckHistory describes the error in a history whose operations have a Deed and an Answer; "": there is none. It checks the history by LifeModel,
// and the order of the tokens of all names.
func CheckHistory(all []porcupine.Operation) string {
	if text := tokensOutOfOrder(all); text != "" {
		return text
	}
	result, info := porcupine.CheckOperationsVerbose(LifeModel(), all, time.Minute)
	if result == porcupine.Ok {
		return ""
	}
	return fmt.Sprintf("the history of %d operations is not linearizable: %s\n%s", len(all), result, contradiction(all, info))
}

// contradiction describes the first contradiction of a history: for the name that has one, the end of the longest possible order, and
// the next operations, none of which can follow.
func contradiction(all []porcupine.Operation, info porcupine.LinearizationInfo) string {
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
			if len(best) > 0 && o.Input.(Deed).Name == best[0].Input.(Deed).Name {
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
	model, in := LifeModel(), longest[0].Input.(Deed)
	var b strings.Builder
	show := func(what string, o porcupine.Operation) {
		d := o.Input.(Deed)
		ms := func(at int64) string {
			if at == math.MaxInt64 {
				return "-"
			}
			return fmt.Sprintf("%.1f", float64(at-all[0].Call)/1e6)
		}
		fmt.Fprintf(&b, "%s %s..%s %s", what, ms(o.Call), ms(o.Return), model.DescribeOperation(o.Input, o.Output))
		if d.Verb == MKD {
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
		if o.Input.(Deed).Name == in.Name && !fitting[o] {
			rest = append(rest, o)
		}
	}
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, o := range rest[:min(len(rest), 20)] {
		show("does not", o)
	}
	return b.String()
}

// tokensOutOfOrder describes two grants of any names with one token, or with tokens in the wrong order: the second one began after the reply
// to the first, and has the smaller token. "": there are none.
func tokensOutOfOrder(all []porcupine.Operation) string {
	type grant struct {
		call, ret int64
		token     lock.Token
	}
	var grants []grant
	for _, o := range all {
		if out := o.Output.(Answer); out.Token != 0 {
			grants = append(grants, grant{o.Call, o.Return, out.Token})
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.token, b.token) })
	latest := int64(0) // the latest call so far
	for i, g := range grants {
		if i > 0 && g.token == grants[i-1].token {
			return fmt.Sprintf("token %d was given twice", g.token)
		}
		if g.ret < latest {
			return fmt.Sprintf("token %d was granted before the MKD with a smaller token began", g.token)
		}
		latest = max(latest, g.call)
	}
	return ""
}
