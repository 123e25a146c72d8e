package files

import (
	"context"
	"errors"
	"flag"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/powerloss"
)

var powerTwice = flag.Int("power.twice", 1, "how many recoveries of each kind are recorded, and lose power again")

// recovered is what a start says when it has done all that it owes; it is followed by one publication.
const recovered = "recovered"

var late = powerStep{"late", contents{"/late": text("late"), "/a/late": text("late")}, publication(contents{"/late": text("late"), "/a/late": text("late")}).do}

// TestPowerRecovery is what the server does when it starts again after a play, in the process that is recorded.
func TestPowerRecovery(t *testing.T) {
	if os.Getenv(powerPlayEnv) == "" {
		return // it is no test of its own
	}
	tree, err := recoverPower(os.Getenv(powerRootEnv))
	if err == nil {
		err = powerloss.Say(recovered)
	}
	if err == nil {
		err = late.say(tree)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// recoverPower opens a tree as the server does.
func recoverPower(base string) (*Tree, error) {
	tree, err := openPower(base)
	if err != nil {
		return nil, err
	}
	for _, r := range tree.Redone() {
		err = errors.Join(err, r.Forget())
	}
	if err = errors.Join(err, tree.Sweep(context.Background())); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	return tree, nil
}

// restart records what a start does on some of the images.
func (p powerPlay) restart(t *testing.T, base string, images iter.Seq[*powerloss.Image], n int) []*powerloss.Recording {
	t.Helper()
	return powerloss.RecordTests(t, images, n, *powerSeed, "TestPowerRecovery", powerPlayEnv+"="+p.name, powerRootEnv+"="+base)
}

func TestAfterALossOfPowerInARecoveryEveryAcknowledgedFileIsThereAndNoneIsHalfThere(t *testing.T) {
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
	const published = "several files are published"
	for _, guard := range []struct {
		name    string
		where   string // what is there when it starts, after a kill
		said    int    // how much had been said by then
		without func(powerloss.Sync) bool
	}{
		{"of a record that it found", "state/uploads/" + commitPrefix + "*", 1, isDirectory("state/uploads")},
		{"of what that has it publish", "state/uploads/" + commitPrefix + "*", 1, isDirectory("root/a")},
		{"of what is above the directory of records", "state/uploads", 0, isDirectory("state")},
	} {
		t.Run(guard.name, func(t *testing.T) {
			p := powerPlayNamed(published)
			r, base := p.record(t)
			all := p.restart(t, base, where(t, r.Kills(), guard.said, filepath.Join(base, guard.where)), 8**powerTwice)
			t.Parallel() // not before: a process that is being started has the locks of all others open for a moment
			missed := false
			for _, again := range all {
				o := powerloss.Options{Seed: *powerSeed, Most: *powerMost}
				if _, wrong := p.try(t, again, base, o); wrong != "" {
					t.Errorf("with all syncs: %s", wrong)
				}
				if !missed {
					o.Without = guard.without
					_, wrong := p.try(t, again, base, o)
					missed = strings.Contains(wrong, "want one of")
				}
			}
			if !missed {
				t.Errorf("nothing is wrong in %d recoveries, of which the last one synced %v", len(all), all[len(all)-1].Syncs())
			}
		})
	}
}

// where are those of the images in which there is something that a pattern matches, when so much had been said.
func where(t *testing.T, images iter.Seq[*powerloss.Image], said int, pattern string) iter.Seq[*powerloss.Image] {
	return func(yield func(*powerloss.Image) bool) {
		for image := range images {
			if len(image.Said) != said {
				continue
			}
			if err := image.Restore(); err != nil {
				t.Fatal(err)
			}
			if found, _ := filepath.Glob(pattern); len(found) > 0 && !yield(image) {
				return
			}
		}
	}
}
