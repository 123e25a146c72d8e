package files

import (
	"context"
	"errors"
	"testing"

	"github.com/ftplockd/ftplockd/internal/powerloss"
)

// A start after a loss of power reports starting, and recovered when it is complete. One upload follows.
const (
	starting  = "starting"
	recovered = "recovered"
)

var late = upload("/a/late", text("late"), UploadOptions{})

// TestPowerRecovery starts the server again after a play, in the recorded process.
func TestPowerRecovery(t *testing.T) {
	name, base := powerloss.Playing()
	if name == "" {
		return // it only runs as a part of other tests
	}
	if err := powerloss.Note(starting); err != nil {
		t.Fatal(err)
	}
	tree, err := recoverPower(base)
	if err == nil {
		err = powerloss.Note(recovered)
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
