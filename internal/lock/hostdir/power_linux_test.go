package hostdir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
	"github.com/ftplockd/ftplockd/internal/powerloss"
)

var power = powerloss.Flags(4)

// powerTree is a hostTree of which directories that are removed can be brought back.
type powerTree struct {
	*hostTree
	base string
}

func (p powerTree) RemoveDir(name string) error { return powerloss.Rmdir(p.base, p.real(name)) }

// powerPlays are what the server does until the power fails: it starts, does the acts, and starts again.
var powerPlays = map[string][][]locktest.Act{
	"acquire, release, acquire": {locktest.PlayThrice},
	"a group and its members":   {locktest.PlayMembers},
	"two starts":                {locktest.PlayOnce, {{Name: "/b_lock", Account: "ben"}}},
}

// powerOpen opens a store below a directory.
func powerOpen(base string) (store *Store, stop func() error, err error) {
	clock := lock.NewSystemClock()
	inner, err := journal.Open(journal.Options{Dir: filepath.Join(base, "state"), Clock: clock, Durable: true, MaxSize: 1800})
	if err != nil {
		return nil, nil, err
	}
	store, err = Open(context.Background(), Options{
		Inner: inner, FS: powerTree{newHostTree(filepath.Join(base, "files")), base}, Clock: clock, Rules: testRules{},
	})
	return store, inner.Close, err
}

// powerPerform opens a store in the process that is recorded and has clients do the acts.
func powerPerform(t *testing.T, base string, found, acts []locktest.Act) {
	store, stop, err := powerOpen(base)
	if err != nil {
		t.Fatal(err)
	}
	err = locktest.Found(store, found, powerloss.Say)
	if err := errors.Join(err, locktest.Perform(store, lock.NewSystemClock(), acts, powerloss.Say), stop()); err != nil {
		t.Fatal(err)
	}
}

// TestPowerPlay is a play, in the process that is recorded.
func TestPowerPlay(t *testing.T) {
	name, base := powerloss.Playing()
	for _, acts := range powerPlays[name] { // none: it is no test of its own
		powerPerform(t, base, nil, acts)
	}
}

// TestPowerRecovery is what the server does when it starts again after a play, in the process that is recorded: it starts on
// what is there, tells clients who holds what, and gives one of them a lock.
func TestPowerRecovery(t *testing.T) {
	if name, base := powerloss.Playing(); name != "" {
		powerPerform(t, base, slices.Concat(powerPlays[name]...), []locktest.Act{{Name: "/late_lock", Account: "eve"}})
	}
}

// complaints opens a store on what a power failure has left and returns what is wrong with it.
func complaints(base string, said []string) (all []string) {
	store, stop, err := powerOpen(base)
	if err != nil {
		return []string{fmt.Sprintf("it does not start: %v", err)}
	}
	defer stop()
	told := locktest.Recall(said, true, true)
	all = told.Complaints(store)
	for name := range told.May {
		record, err := store.inner.Get(context.Background(), name)
		if err != nil {
			return append(all, err.Error())
		}
		held := len(record.Holds) > 0
		info, err := os.Lstat(filepath.Join(base, "files", string(name)))
		if there := err == nil && info.IsDir(); there != held {
			all = append(all, fmt.Sprintf("%s is held: %v; it has a directory: %v", name, held, there))
		}
	}
	return all
}

// newPlay returns a play in a directory of its own.
func newPlay(t *testing.T, name string) *powerloss.Play {
	t.Helper()
	play := powerloss.NewPlay(t, name, power, complaints)
	for _, dir := range []string{"files", "state", "files/locks"} {
		if err := os.Mkdir(filepath.Join(play.Base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return play
}

func TestAfterALossOfPowerLocksAndDirectoriesAgree(t *testing.T) {
	for name := range powerPlays {
		t.Run(name, func(t *testing.T) { newPlay(t, name).Test() })
	}
}

// A start that gives a hold a new directory syncs before that it has none: else the new one would be taken for the host's if the
// power fails.
func TestTheSyncOfAMissingDirectoryCannotBeLeftOut(t *testing.T) {
	p := newPlay(t, "two starts")
	r := p.Record()
	lost := func(yield func(*powerloss.Image) bool) { // a lock that the journal has seen made has no directory
		for image := range r.Images(*power) {
			if err := image.Restore(); err != nil {
				t.Fatal(err)
			}
			text, _ := os.ReadFile(filepath.Join(p.Base, "state/journal.jsonl"))
			_, err := os.Lstat(filepath.Join(p.Base, "files/a_lock"))
			if err != nil && strings.Contains(string(text), `"directory":{"inode"`) && !yield(image) {
				return
			}
		}
	}
	var found []string
	for again := range p.Starts(lost, 8) {
		if _, wrong := p.Try(again, 4*power.Most, nil); wrong != "" {
			t.Fatalf("with all syncs: %s", wrong)
		}
		_, wrong := p.Try(again, 4*power.Most, func(s powerloss.Sync) bool {
			return strings.HasSuffix(s.Path, "/journal.jsonl") && s.After == "" && afterNew(again, s)
		})
		if strings.Contains(wrong, "is held by host") {
			return
		}
		found = append(found, fmt.Sprintf("%q, synced was %v", wrong, again.Syncs()))
	}
	t.Errorf("nothing is wrong without it:\n%s", strings.Join(found, "\n"))
}

// afterNew reports whether a sync came after that of the new journal, and not of the one before it.
func afterNew(r *powerloss.Recording, s powerloss.Sync) bool {
	for _, other := range r.Syncs() {
		if strings.HasSuffix(other.Path, "/journal.new") {
			return s.Number > other.Number
		}
	}
	return false
}
