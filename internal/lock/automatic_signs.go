package lock

import (
	"hash/maphash"
	"time"
)

// maxSigns bounds the recorded commands of a job, which reveal that two programs run as one job.
const maxSigns = 1024

// parallelWithin is the time after which a second MKD of a directory is a sign of two programs: connections of one program may send it at once.
const parallelWithin = time.Second

// signs has the commands of a job that a single program sends only once.
type signs struct {
	commands map[signKey]sentCommand
	warned   bool
}

// signKey is a command and a path.
type signKey struct {
	sign Sign
	path uint64
}

// sentCommand is a command of a session.
type sentCommand struct {
	signKey
	session SessionID
	at      Time
}

var signSeed = maphash.MakeSeed()

func (s *signs) add(c sentCommand) {
	if s.commands == nil {
		s.commands = make(map[signKey]sentCommand)
	}
	if len(s.commands) < maxSigns {
		s.commands[c.signKey] = c
	}
}

// noteSign records a command of a job. If another session of the job has sent the same, it adds an entry to the history.
func (st *State) noteSign(a *acquisition, now Instant, out *outcome) {
	v, s := a.view, a.session
	if a.sign == NoSign || v.signs.warned || v.refused != nil || a.sign == Fetch && v.hold != nil && v.hold.turn == 0 {
		return
	}
	c := sentCommand{signKey{a.sign, maphash.String(signSeed, string(a.path))}, s.owner.Session, now.Boot}
	switch first, known := v.signs.commands[c.signKey]; {
	case !known:
		out.do(func(*State) { v.signs.add(c) })
	case first.session != c.session && (a.sign != Make || now.Boot >= later(first.at, parallelWithin)):
		out.do(func(*State) { v.signs.warned = true })
		out.records = append(out.records, Record{
			Kind: Published, Cause: CauseTwoRuns, Hold: Hold{Name: a.name, Token: v.base, Owner: s.owner}, By: s.owner, At: now,
			Note: "two programs seem to run as one job: " + signTexts[a.sign] + " by sessions " + first.session.String() + " and " +
				c.session.String(),
			File: &Publication{Path: a.path},
		})
	}
}
