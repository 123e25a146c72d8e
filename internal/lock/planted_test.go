package lock

import (
	"flag"
	"testing"

	"github.com/ftplockd/ftplockd/internal/planted"
)

var modelBugs = flag.Int("model.bugs", 3, "so many of the planted bugs, drawn at random, the model test has to find; -1: all")

// plantedBugs are bugs that the model test must find: the text in a file, and what replaces it.
var plantedBugs = []planted.Bug{
	{"a second exclusive hold", "acquire.go", "(!a.session.shares(rule) || !n.shares() || a.session.holds[a.name] != nil)", "false"},
	{"a token is given twice", "apply.go", "st.last = max(st.last, h.Token)", "st.last = st.last + 0"},
	{"a newcomer overtakes the queue", "acquire.go", "if len(n.queue) > 0 && a.comesAfter(n.queue[0]) {", "if false {"},
	{"a session that asks again goes to the end of the queue", "apply.go", "w.ticket = place.ticket", "_ = place"},
	{"a session that got the lock keeps its place", "apply.go", "} else if place := n.placeOf(h.session); place != nil {", "} else if place := n.placeOf(h.session); false {"},
	{"a place is kept for too long", "next.go", "later(now.Boot, keepPlace)", "later(now.Boot, 2*keepPlace)"},
	{"the limit is not counted down", "index.go", "p.taken--", "p.taken += 0"},
	{"the limit is one too high", "state.go", "p.taken >= p.key", "p.taken > p.key"},
	{"a group ends before its members", "release.go", "case len(n.holds) == 1 && n.below > 0:", "case false:"},
	{"an end by time forgets the members", "next.go", "group := len(n.holds) == 1 && n.below > 0", "group := len(n.holds) == 1 && n.below > 100"},
	{"an end overtakes a write", "release.go", "case len(n.holds) == 1 && n.pins > 0:", "case false:"},
	{"an undone adoption frees the lock", "next.go", "case restores:", "case false:"},
	{"an undone adoption leaves the lock to another session", "release.go", "before := *h.previous", "before := h.Hold"},
	{"an undone adoption leaves the lock to a session without it", "apply.go", "case old.unacknowledged:", "case false:"},
	{"a queue is forgotten at an end", "apply.go", "\tst.recount(n)\n\tst.markDirty(n)\n\tst.prune(n)\n}\n\nfunc (st *State) applyChanged", "\tst.recount(n)\n\tst.prune(n)\n}\n\nfunc (st *State) applyChanged"},
	{"a queue is forgotten after a delay", "apply.go", "st.timers.remove(&n.timer)\n\tst.markDirty(n)", "st.timers.remove(&n.timer)"},
	{"the names below are not counted", "index.go", "\t\t\tp.below++\n", ""},
	{"a failed directory leaves the name busy", "acquire.go", "out.do(unclaimed{c})", "_ = c"},
	{"a reload keeps the old limits", "reload.go", "st.pools = make(map[poolKey]*pool)", "_ = st.pools"},
	{"a limit is granted during a reload", "acquire.go", "if st.reloading && rule.contention.Limit > 0 {", "if false {"},
	{"a reload forgets what is held", "reload.go", "if n.counted && !st.inForce(n.pool) {", "if false {"},
	{"a reload forgets a queue", "reload.go", "if !st.inForce(w.pool) {", "if false {"},
	{"a lock is granted where a write excludes it", "acquire.go", "if out.busy = st.excludedBy(a.name); out.busy != \"\" {", "if false {"},
	{"a session that waits too long stays", "next.go", "out.unqueue(w, st.timeoutError(w, now))", "out.setTimer(&w.timer, never)"},
	{"an account is not counted down", "index.go", "a.holds--\n", ""},
	{"a hold that is too old stands", "next.go", "return later(h.Renewed.Boot, age)", "return later(h.Renewed.Boot, 2*age)"},
}

// TestModelFindsPlantedBugs shows that the model test can fail.
func TestModelFindsPlantedBugs(t *testing.T) {
	planted.Find(t, "Model", plantedBugs, *modelBugs, "-model.runs", "3000")
}
