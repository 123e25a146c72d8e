package files

import (
	"context"
	"errors"
	"flag"
	"iter"
	"os"
	"testing"

	"github.com/ftplockd/ftplockd/internal/powerloss"
)

var powerTwice = flag.Int("power.twice", 1, "how many recoveries of each kind are recorded, and lose power again")

// recovered is what a start says when it has done all that it owes; one upload follows it.
const recovered = "recovered"

var late = upload("/a/late", text("late"), UploadOptions{})

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
	if err := tree.Sweep(context.Background()); err != nil {
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
			p.twice = true
			powerloss.Twice(t, r, powerloss.Options{Seed: *powerSeed, Most: *powerMost}, func(images iter.Seq[*powerloss.Image]) []*powerloss.Recording {
				return p.restart(t, base, images, *powerTwice)
			}, func(again *powerloss.Recording, o powerloss.Options) (int, string) { return p.try(t, again, base, o) })
		})
	}
}
