package driver

import (
	"testing"

	"github.com/ftplockd/ftplockd/internal/files"
)

// pausing is a tree whose Move waits until goOn is closed.
type pausing struct {
	*files.Tree
	renaming, goOn chan struct{}
}

func (p *pausing) Move(from, to string, check files.Check) error {
	close(p.renaming)
	<-p.goOn
	return p.Tree.Move(from, to, check)
}

// Between the check that no lock is held below a directory and its rename, no lock is granted there: it would be moved.
func TestNoLockIsGrantedInADirectoryThatIsBeingRenamed(t *testing.T) {
	p := &pausing{}
	eachMode(t, func(t *testing.T, s *server) {
		s.mkdir("/dir")
		mover, locker := s.as("phoneacc"), s.as("other")
		mover.want("RNFR /dir", "350 *")
		mover.send("RNTO /moved\r\n")
		<-p.renaming
		locker.send("MKD /dir/x_lock\r\n")
		s.until("MKD waits, or is granted", func() bool { return s.held("/dir/x_lock") || somewhere("(*client).acquire", "(*Table).decide") })
		close(p.goOn)
		mover.check("RNTO", mover.reply(), "250 *")
		locker.check("MKD", locker.reply(), "550 *")
		if s.held("/dir/x_lock") {
			t.Error("a lock is held in a directory that was renamed")
		}
	}, func(o *setup) {
		o.wrap = func(tree *files.Tree) Tree {
			*p = pausing{tree, make(chan struct{}), make(chan struct{})}
			return p
		}
	})
}
