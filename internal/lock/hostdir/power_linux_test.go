package hostdir

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
	"github.com/ftplockd/ftplockd/internal/powerloss"
)

var (
	powerSeed  = flag.Uint64("power.seed", 1, "seed of the sample of what a loss of power leaves")
	powerMost  = flag.Int("power.most", 4, "how many of the states are tried that a loss of power can leave at one moment")
	powerTwice = flag.Int("power.twice", 1, "how many recoveries of each kind are recorded, and lose power again")
)

// The process whose writes are recorded is this test binary: these say what it does and where.
const (
	powerPlayEnv = "HOSTDIR_POWER_PLAY"
	powerRootEnv = "HOSTDIR_POWER_ROOT"
)

// powerTree is a hostTree of which directories that are removed can be brought back.
type powerTree struct {
	*hostTree
	base string
}

func (p powerTree) RemoveDir(name string) error { return powerloss.Rmdir(p.base, p.real(name)) }

// powerClock is the system's clock, with a boot that all processes of the test share.
type powerClock struct{}

func (powerClock) Now() lock.Instant {
	now := time.Now()
	return lock.Instant{Wall: now, Boot: now.Sub(time.Unix(1_500_000_000, 0)), BootID: "00000000-0000-4000-8000-000000000002"}
}

// powerPlays are what the server does until the power fails: it starts, does the acts, and starts again.
var powerPlays = map[string][][]locktest.Act{
	"acquire, release, acquire": {locktest.PlayThrice},
	"two starts":                {locktest.PlayOnce, {{Name: "/b_lock", Account: "ben"}}},
}

// powerOpen opens a store below a directory.
func powerOpen(base string) (store *Store, stop func() error, err error) {
	inner, err := journal.Open(journal.Options{Dir: filepath.Join(base, "state"), Clock: powerClock{}, Durable: true, MaxSize: 1800})
	if err != nil {
		return nil, nil, err
	}
	store, err = Open(context.Background(), Options{
		Inner: inner, FS: powerTree{newHostTree(filepath.Join(base, "files")), base}, Clock: powerClock{}, Rules: testRules{},
	})
	return store, inner.Close, err
}

// TestPowerPlay is a play, in the process that is recorded.
func TestPowerPlay(t *testing.T) {
	for _, acts := range powerPlays[os.Getenv(powerPlayEnv)] { // none: it is no test of its own
		store, stop, err := powerOpen(os.Getenv(powerRootEnv))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(locktest.Perform(store, powerClock{}, acts, powerloss.Say), stop()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPowerRecovery is what the server does when it starts again after a play, in the process that is recorded: it starts on
// what is there, tells clients who holds what, and gives one of them a lock.
func TestPowerRecovery(t *testing.T) {
	acts := powerPlays[os.Getenv(powerPlayEnv)]
	if len(acts) == 0 {
		return // it is no test of its own
	}
	store, stop, err := powerOpen(os.Getenv(powerRootEnv))
	if err != nil {
		t.Fatal(err)
	}
	err = locktest.Found(store, slices.Concat(acts...), powerloss.Say)
	err = errors.Join(err, locktest.Perform(store, powerClock{}, []locktest.Act{{Name: "/late_lock", Account: "eve"}}, powerloss.Say), stop())
	if err != nil {
		t.Fatal(err)
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
		held := len(store.inner.Get(name).Holds) > 0
		info, err := os.Lstat(filepath.Join(base, "files", string(name)))
		if there := err == nil && info.IsDir(); there != held {
			all = append(all, fmt.Sprintf("%s is held: %v; it has a directory: %v", name, held, there))
		}
	}
	return all
}

// powerRecord has a process of its own play, and records it.
func powerRecord(t *testing.T, play string) (*powerloss.Recording, string) {
	t.Helper()
	base := powerloss.Dir(t)
	for _, dir := range []string{base, filepath.Join(base, "files"), filepath.Join(base, "state")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return powerloss.RecordTest(t, base, "TestPowerPlay", powerPlayEnv+"="+play, powerRootEnv+"="+base), base
}

// powerRestart records what a start does on some of the images.
func powerRestart(t *testing.T, base, play string, images iter.Seq[*powerloss.Image], n int) []*powerloss.Recording {
	t.Helper()
	return powerloss.RecordTests(t, images, n, *powerSeed, "TestPowerRecovery", powerPlayEnv+"="+play, powerRootEnv+"="+base)
}

func powerTry(t *testing.T, base string) func(*powerloss.Recording, powerloss.Options) (int, string) {
	return func(r *powerloss.Recording, o powerloss.Options) (int, string) {
		return r.Try(t, o, func(said []string) []string { return complaints(base, said) })
	}
}

func TestAfterALossOfPowerLocksAndDirectoriesAgree(t *testing.T) {
	for play := range powerPlays {
		t.Run(play, func(t *testing.T) {
			r, base := powerRecord(t, play)
			o := powerloss.Options{Seed: *powerSeed, Most: *powerMost}
			if images, wrong := powerTry(t, base)(r, o); wrong != "" {
				t.Errorf("seed %d, after %d images: %s", *powerSeed, images, wrong)
			}
			powerloss.Twice(t, r, o, func(images iter.Seq[*powerloss.Image]) []*powerloss.Recording {
				return powerRestart(t, base, play, images, *powerTwice)
			}, powerTry(t, base))
		})
	}
}

// A start that gives a hold a new directory syncs before that it has none: else the new one would be taken for the host's if the
// power fails.
func TestTheSyncOfAMissingDirectoryCannotBeLeftOut(t *testing.T) {
	const play = "two starts"
	r, base := powerRecord(t, play)
	lost := func(yield func(*powerloss.Image) bool) { // a lock that the journal has seen made has no directory
		for image := range r.Images(powerloss.Options{Seed: *powerSeed, Most: *powerMost}) {
			if err := image.Restore(); err != nil {
				t.Fatal(err)
			}
			text, _ := os.ReadFile(filepath.Join(base, "state/journal.jsonl"))
			_, err := os.Lstat(filepath.Join(base, "files/a_lock"))
			if err != nil && strings.Contains(string(text), `"directory":{"inode"`) && !yield(image) {
				return
			}
		}
	}
	var found []string
	for _, again := range powerRestart(t, base, play, lost, 8) {
		without := func(s powerloss.Sync) bool {
			return strings.HasSuffix(s.Path, "/journal.jsonl") && s.After == "" && afterNew(again, s)
		}
		_, wrong := powerTry(t, base)(again, powerloss.Options{Seed: *powerSeed, Most: 4 * *powerMost, Without: without})
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
