package driver

import (
	"testing"

	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
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

// The path by which a client acquired a lock leads to it until its end: otherwise a second client would get a lock of the same path.
func TestALinkThatLeadsToAHeldLockStays(t *testing.T) {
	inBothModes(t, `
		- mkdir /rel1
		- mkdir /rel2
		- write /file x
		- link /cur way
		- link /way rel1
		- link /next rel2
		- link /top .
		a MKD /cur/x_lock => 257 *
		b DELE /cur => 550 /cur: there are held locks below it
		b DELE /way => 550 /way: there are held locks below it
		b DELE /top => 550 /top: there are held locks below it
		b RNFR /cur => 350 *
		b RNTO /old => 550 /old: there are held locks below it
		b RNFR /next => 350 *
		b RNTO /cur => 550 /cur: there are held locks below it
		b RNFR /file => 350 *
		b RNTO /way => 550 /way: there are held locks below it
		b MKD /cur/x_lock => 550 /cur/x_lock: held by phoneacc@*
		b DELE /next => 250 *
		a RMD /cur/x_lock => 250 *
		b RNFR /file => 350 *
		b RNTO /way => 250 *
		b DELE /cur => 250 *
		b DELE /top => 250 *`)
}

// A link to a directory leads around the protection of the paths below its name.
func TestALinkDoesNotGetANameAboveProtectedPaths(t *testing.T) {
	const below = "550 *: there are protected files below it, or would be"
	plays(t, `
		- mkdir /dir
		- mkdir /www
		- mkdir /bag
		- write /file x
		- link /way dir
		- link /dangling none
		- link /tofile file
		- link /bag/a ../dir
		boss RNFR /way => 350 *
		boss RNTO /www/a => `+below+`
		boss RNFR /dangling => 350 *
		boss RNTO /www/a => `+below+`
		boss RNFR /bag => 350 *
		boss RNTO /www/b => 250 *
		boss RNFR /www/b => 350 *
		boss RNTO /bag => 250 *
		boss RMD /www => 250 *
		boss RNFR /bag => 350 *
		boss RNTO /www => `+below+`
		boss RNFR /way => 350 *
		boss RNTO /phone.d => `+below+`
		boss RNFR /way => 350 *
		boss RNTO /other => 250 *
		- mkdir /www
		boss RNFR /tofile => 350 *
		boss RNTO /www/a => 250 *`, func(o *setup) {
		o.rules = []lock.Rule{
			{Match: "/locks/*", Protection: &lock.Protection{Paths: []string{"/www/$1/index.html"}}},
			{Match: "**/*_lock", Protection: &lock.Protection{Paths: []string{"$1/$2.tsv", "$1/$2.d/**/*.dat"}}},
		}
	})
}
