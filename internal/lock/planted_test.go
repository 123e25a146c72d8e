package lock

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var modelBugs = flag.Int("model.bugs", 3, "so many of the planted bugs, drawn at random, the model test has to find; -1: all")

// planted are bugs that the model test must find: the text in a file, and what replaces it.
var planted = []struct{ name, file, is, becomes string }{
	{"a second exclusive hold", "acquire.go", "(!a.session.shares(rule) || !n.shares() || a.session.holds[a.name] != nil)", "false"},
	{"a token is given twice", "apply.go", "st.last = max(st.last, h.Token)", "st.last = st.last + 0"},
	{"a newcomer overtakes the queue", "acquire.go", "if len(n.queue) > 0 && n.queue[0] != a.waiter {", "if false {"},
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

// TestModelFindsPlantedBugs shows that the model test can fail: it builds the package with one of the bugs at a time.
func TestModelFindsPlantedBugs(t *testing.T) {
	for _, bug := range planted {
		if source, err := os.ReadFile(bug.file); err != nil || strings.Count(string(source), bug.is) != 1 {
			t.Errorf("%s does not contain %q once: %v", bug.file, bug.is, err)
		}
	}
	bugs := planted
	if n := *modelBugs; n >= 0 && n < len(bugs) {
		bugs = nil
		for _, i := range rand.Perm(len(planted))[:n] {
			bugs = append(bugs, planted[i])
		}
	}
	for _, bug := range bugs {
		t.Run(bug.name, func(t *testing.T) {
			source, err := os.ReadFile(bug.file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			wrong := filepath.Join(dir, bug.file)
			here, err := filepath.Abs(bug.file)
			if err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]map[string]string{"Replace": {here: wrong}})
			if err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{wrong: strings.Replace(string(source), bug.is, bug.becomes, 1), filepath.Join(dir, "overlay.json"): string(overlay)} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", filepath.Join(dir, "overlay.json"),
				"-run", "^TestModel$", "-count", "1", "-timeout", "5m", "-model.runs", "3000", ".").CombinedOutput()
			switch {
			case err == nil:
				t.Error("the model test did not find it")
			case !strings.Contains(string(out), "--- FAIL: TestModel") && !strings.Contains(string(out), "panic:"):
				t.Errorf("the model test did not run: %s", out)
			}
		})
	}
}
