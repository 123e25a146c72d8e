package files

import (
	"context"
	"errors"
	"testing"

	"github.com/ftplockd/ftplockd/internal/powerloss"
)

// starting is what a start says that follows a loss of power, recovered what it says when it has done all that it owes; one upload follows it.
const (
	starting  = "starting"
	recovered = "recovered"
)

var late = upload("/a/late", text("late"), UploadOptions{})

// TestPowerRecovery is what the server does when it starts again after a play, in the process that is recorded.
func TestPowerRecovery(t *testing.T) {
	name, base := powerloss.Playing()
	if name == "" {
		return // it is no test of its own
	}
	if err := powerloss.Say(starting); err != nil {
		t.Fatal(err)
	}
	tree, err := recoverPower(base)
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
