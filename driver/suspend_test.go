package driver

import (
	"testing"

	"github.com/ftplockd/ftplockd/internal/files"
)

const notNow = "not now: etcd does not answer; nothing was changed, try again"

func TestASuspendedServerChangesNoLockAndNoProtectedFile(t *testing.T) {
	plays(t, `
		- write /phone.tsv old
		- write /plain old
		- mkdir /dir
		boss SITE LOCK AS job => 200 *
		boss MKD /phone_lock => 257 *
		boss MKD /x_lock => 257 *
		boss STOR /x_lock/f <<< old => 226 *
		boss RNFR /phone.tsv => 350 *
		boss2 RNFR /plain => 350 *
		boss3 SITE LOCK AS job => 200 *
		a STOR /plain <<< before ...
		boss5 SITE LOCK AS job => 200 *
		boss5 STOR /phone.tsv <<< new ...
		boss6 SITE LOCK AS job => 200 *
		boss6 STOR /x_lock/f <<< new ...
		- suspend
		b MKD /free_lock => 451 /free_lock: `+notNow+`
		b MKD /phone_lock => 451 /phone_lock: `+notNow+`
		b SITE WAIT 10 => 200 *
		b MKD /phone_lock => 451 /phone_lock: `+notNow+`
		boss3 MKD /phone_lock => 451 /phone_lock: `+notNow+`
		boss RMD /phone_lock => 451 /phone_lock: `+notNow+`
		boss SITE LOCK RENEW /phone_lock => 451 /phone_lock: `+notNow+`
		boss SITE LOCK INFO /phone_lock => 451 /phone_lock: `+notNow+`
		boss SITE LOCKS => 451 SITE LOCKS: `+notNow+`
		boss RETR /.locks.json => 451 /.locks.json: `+notNow+`
		boss DELE /phone.tsv => 451 /phone.tsv: `+notNow+`
		boss MFMT 20200102030405 /phone.tsv => 451 /phone.tsv: `+notNow+`
		boss DELE /x_lock/f => 451 /x_lock/f: `+notNow+`
		boss RNFR /phone.tsv => 350 *
		boss RNTO /other => 451 /other: `+notNow+`
		boss2 RNTO /other => 451 /other: `+notNow+`
		boss RMD /dir => 451 /dir: `+notNow+`
		boss5 => 451 /phone.tsv: `+notNow+`
		boss6 => 451 /x_lock/f: `+notNow+`
		boss STOR /phone.tsv <<< new => 451 /phone.tsv: `+notNow+`
		# uploads that no lock protects go on
		a => 226 *
		- file /plain before
		- file /phone.tsv old
		- pass 1h
		- resume
		- pass 0s
		# the sessions are still open
		boss STOR /phone.tsv <<< late => 550 *taken away*
		boss RMD /phone_lock => 550 /phone_lock: taken away *
		boss MKD /phone_lock => 257 *
		boss STOR /phone.tsv <<< new => 226 *
		boss3 MKD /phone_lock => 257 *
		boss3 RMD /phone_lock => 250 *
		b MKD /free_lock => 257 *
		boss2 RNFR /plain => 350 *
		boss2 RNTO /other => 250 *
		boss RMD /dir => 250 *`,
		protected, plainLocks)
}

// deposing is a tree whose server is replaced while the tree opens the directory of a change.
type deposing struct {
	*files.Tree
	server *server
}

func (d *deposing) RemoveFile(name string, check files.Check) error {
	d.server.suspended.Store(true)
	return d.Tree.RemoveFile(name, check)
}

func (d *deposing) Move(from, to string, check files.Check) error {
	d.server.suspended.Store(true)
	return d.Tree.Move(from, to, check)
}

func TestADeposedServerChangesNothingInADirectoryThatItOpensLate(t *testing.T) {
	d := new(deposing)
	s := start(t, plainLocks, func(o *setup) {
		o.wrap = func(tree *files.Tree) Tree { d.Tree = tree; return d }
	})
	d.server = s
	s.play(t, `
		a MKD /locks/x => 257 *
		a STOR /locks/x/f <<< content => 226 *
		a DELE /locks/x/f => 451 /locks/x/f: `+notNow+`
		- resume
		a RNFR /locks/x/f => 350 *
		a RNTO /locks/x/g => 451 /locks/x/g: `+notNow+`
		- resume
		- file /locks/x/f content`)
}
