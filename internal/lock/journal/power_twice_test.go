//go:build linux

package journal

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/powerloss"
)

var powerTwice = flag.Int("power.twice", 1, "how many recoveries of each kind are recorded, and lose power again")

// TestPowerRecovery is what the server does when it starts again after a play, in the process that is recorded.
func TestPowerRecovery(t *testing.T) {
	name := os.Getenv(powerPlayEnv)
	if name == "" {
		return // it is no test of its own
	}
	if err := powerPlayNamed(name).recover(os.Getenv(powerRootEnv)); err != nil {
		t.Fatal(err)
	}
}

// recover starts on what is there, tells clients who holds what, and gives one of them a lock.
func (p powerPlay) recover(base string) error {
	store, err := p.open(base, true)
	if err != nil {
		return err
	}
	err = powerloss.Say(fmt.Sprint("started ", store.Generation()))
	holders := make(map[lock.Name]string)
	for record, allErr := range store.All(context.Background()) {
		err = errors.Join(err, allErr)
		holders[record.Name] = record.Holds[0].Owner.Account
	}
	for name := range p.names() {
		err = errors.Join(err, powerloss.Say(fmt.Sprint("found ", name, " ", cmp.Or(holders[name], "nobody"))))
	}
	err = errors.Join(err, act{"/late_lock", "eve"}.do(store, make(map[lock.Name]lock.Token)))
	return errors.Join(err, store.Close())
}

// names yields those that the play asks for.
func (p powerPlay) names() iter.Seq[lock.Name] {
	return func(yield func(lock.Name) bool) {
		seen := map[lock.Name]bool{"": true}
		for _, acts := range p.stores {
			for _, a := range acts {
				if !seen[a.name] && !yield(a.name) {
					return
				}
				seen[a.name] = true
			}
		}
	}
}

// restart records what a start does on some of the images.
func (p powerPlay) restart(t *testing.T, base string, images iter.Seq[*powerloss.Image], n int) []*powerloss.Recording {
	t.Helper()
	return powerloss.RecordTests(t, images, n, *powerSeed, "TestPowerRecovery", powerPlayEnv+"="+p.name, powerRootEnv+"="+base)
}

func TestAfterALossOfPowerInARecoveryEveryAcknowledgedLockIsThere(t *testing.T) {
	for _, p := range powerPlays {
		t.Run(p.name, func(t *testing.T) {
			r, base := p.record(t)
			powerloss.Twice(t, r, powerloss.Options{Seed: *powerSeed, Most: *powerMost}, func(images iter.Seq[*powerloss.Image]) []*powerloss.Recording {
				return p.restart(t, base, images, *powerTwice)
			}, func(again *powerloss.Recording, o powerloss.Options) (int, string) { return p.try(t, again, base, o) })
		})
	}
}

// A recovery in which a sync has no effect is what a server would do that lacks it. Each of them must be missed.
func TestNoSyncOfAStartCanBeLeftOut(t *testing.T) {
	const fresh, plain, twice, rotation = "acquire on a fresh state directory", "acquire, release, acquire", "two starts", "rotation"
	for _, guard := range []struct {
		name, play string
		killed     bool                   // the start comes after a kill, at each moment, not after a loss of power
		where      func(base string) bool // what the start finds; nil: anything
		without    func(powerloss.Sync) bool
		which      int    // of those: 0 all, else the first, the second ...
		want       string // what is wrong then
	}{
		{"of what is above the state directory", fresh, true, nil, directorySync(".", ""), 0, "came twice"},
		{"of the journal's name", fresh, true, nil, directorySync("state", ""), 0, "came twice"},
		{"of a generation", plain, false, nil, file("journal.jsonl", ""), 2, "came twice"},
		{"of that a hold has lost its directory", twice, false, lostDirectory, file("journal.jsonl", ""), 3, "is held by host"},
		{"of a new journal", rotation, false, nil, file("journal.new", ""), 0, "said: "},
		{"of the directory after a rotation", rotation, false, nil, directorySync("state", ""), 2, "is held by"},
		{"of history", rotation, false, nil, directorySync("state/history", ""), 0, "the history of"},
	} {
		t.Run(guard.name, func(t *testing.T) {
			p := powerPlayNamed(guard.play)
			r, base := p.record(t)
			images, n := r.Images(powerloss.Options{Seed: *powerSeed, Most: *powerMost}), 8**powerTwice
			if guard.killed {
				images, n = r.Kills(), 1000
			}
			if guard.where != nil {
				images = where(t, images, func() bool { return guard.where(base) })
			}
			all := p.restart(t, base, images, n)
			t.Parallel() // not before: a process that is being started has the locks of all others open for a moment
			o := powerloss.Options{Seed: *powerSeed, Most: *powerMost}
			for _, again := range all {
				if !guard.killed {
					break // the test above has a sample of these
				}
				if _, wrong := p.try(t, again, base, o); wrong != "" {
					t.Errorf("with all syncs: %s", wrong)
				}
			}
			var found []string
			for _, again := range all {
				o.Most, o.Without = 4**powerMost, nth(again.Syncs(), guard.without, guard.which)
				looked, wrong := p.try(t, again, base, o)
				if strings.Contains(wrong, guard.want) {
					return
				}
				found = append(found, fmt.Sprintf("%d images, %q, synced was %v", looked, wrong, again.Syncs()))
			}
			t.Errorf("nothing that is wrong says %q:\n%s", guard.want, strings.Join(found, "\n"))
		})
	}
}

// where are those of the images that have something about them.
func where(t *testing.T, images iter.Seq[*powerloss.Image], is func() bool) iter.Seq[*powerloss.Image] {
	return func(yield func(*powerloss.Image) bool) {
		for image := range images {
			if err := image.Restore(); err != nil {
				t.Fatal(err)
			}
			if is() && !yield(image) {
				return
			}
		}
	}
}

// lostDirectory reports whether a lock that the journal has seen made has no directory.
func lostDirectory(base string) bool {
	text, _ := os.ReadFile(stateDir(filepath.Join(base, "state")).journal())
	_, err := os.Lstat(filepath.Join(base, "files/a_lock"))
	return err != nil && strings.Contains(string(text), `"event":"directory"`)
}

// nth matches the n-th of the syncs that another matches, from 1; 0: all of them.
func nth(all []powerloss.Sync, is func(powerloss.Sync) bool, n int) func(powerloss.Sync) bool {
	for _, s := range all {
		if is(s) {
			if n--; n == 0 {
				return func(other powerloss.Sync) bool { return other.Number == s.Number }
			}
		}
	}
	return func(s powerloss.Sync) bool { return n < 0 && is(s) }
}
