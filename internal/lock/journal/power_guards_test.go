//go:build linux

package journal

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/powerloss"
)

var (
	powerSeed = flag.Uint64("power.seed", 1, "seed of the sample of what a loss of power leaves")
	powerMost = flag.Int("power.most", 8, "how many of the states are tried that a loss of power can leave at one moment")
)

// A recording in which a sync has no effect is what a server would do that lacks it. Each of them must be missed.
func TestNoSyncOfTheJournalCanBeLeftOut(t *testing.T) {
	for _, guard := range []struct {
		name, play string
		without    func(powerloss.Sync) bool
		want       string // what is wrong then
	}{
		{"before a grant is acknowledged", "acquire, release, acquire", file("journal.jsonl", "may "), "is held by nobody, want one of [ada]"},
		{"of a generation", "two starts", file("journal.jsonl", ""), "came twice"},
		{"of reserved tokens", "not durable, a block of tokens", file("journal.jsonl", "did "), "said: "},
		{"of a new journal before it is renamed", "acquire on a fresh state directory", file("journal.new", ""), "does not start"},
		{"of a new journal in a rotation", "rotation", file("journal.new", "may "), "said: "},
		{"of the directory after the first journal", "acquire, release, acquire", directorySync("state", ""), "came twice"},
		{"of the directory after a rotation", "rotation", directorySync("state", "may "), "is held by"},
		{"of history before the journal's name is taken", "rotation", directorySync("state/history", "may "), "the history of"},
		{"of what is above a new state directory", "acquire on a fresh state directory", directorySync(".", ""), "came twice"},
	} {
		t.Run(guard.name, func(t *testing.T) {
			p := powerPlayNamed(guard.play)
			r, base := p.record(t)
			t.Parallel() // not before: a process that is being started has the locks of all others open for a moment
			images, wrong := p.try(t, r, base, powerloss.Options{Seed: *powerSeed, Most: 4 * *powerMost, Without: guard.without})
			if !strings.Contains(wrong, guard.want) {
				t.Errorf("of %d images the first that something is wrong with says %q, want %q; synced was %v", images, wrong, guard.want, r.Syncs())
			}
		})
	}
}

// file matches the syncs of a file that came when the last thing said began like this; "": when nothing had been said.
func file(base, after string) func(powerloss.Sync) bool {
	return func(s powerloss.Sync) bool {
		return !s.Directory && strings.HasSuffix(s.Path, "/"+base) && begins(s.After, after)
	}
}

func directorySync(path, after string) func(powerloss.Sync) bool {
	return func(s powerloss.Sync) bool { return s.Directory && s.Path == path && begins(s.After, after) }
}

func begins(text, with string) bool {
	return with == "" && text == "" || with != "" && strings.HasPrefix(text, with)
}

// A hole is what a loss of power leaves of lines that were not synced. Where later lines prove that they were, it is damage.
func TestAHoleInTheJournal(t *testing.T) {
	for _, c := range []struct {
		name    string
		hole    string // part of the line of this name reads as zeros
		damaged bool
	}{
		{"among the last lines", "/c_lock", false},
		{"before a start", "/b_lock", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.options = func(o *Options) { o.FS, o.Root = nil, "" }
			store := s.mustOpen()
			s.acquire(store, "/a_lock", "ada")
			s.acquire(store, "/b_lock", "ben")
			s.acquire(store, "/e_lock", "ben")
			s.crash(store)
			store = s.mustOpen()
			for _, name := range []lock.Name{"/c_lock", "/d_lock", "/f_lock"} {
				s.acquire(store, name, "ada")
			}
			s.crash(store)
			text := []byte(s.journal())
			at := bytes.Index(text, []byte(c.hole))
			clear(text[at-20 : at+20])
			if err := os.WriteFile(stateDir(s.state).journal(), text, 0o600); err != nil {
				t.Fatal(err)
			}
			store, err := s.open()
			if c.damaged {
				if err == nil || !strings.Contains(err.Error(), "journal.jsonl:4: damaged") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s.heldBy(store, "/e_lock", "ben")
			s.heldBy(store, "/d_lock", "")
			s.acquire(store, "/d_lock", "eve")
			s.crash(store)
			store = s.mustOpen()
			s.heldBy(store, "/d_lock", "eve")
			s.crash(store)
		})
	}
}
