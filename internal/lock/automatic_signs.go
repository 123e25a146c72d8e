package lock

import (
	"hash/maphash"
	"time"
)

// maxSigns is how many commands of a job are remembered to find out that two programs run as one job.
const maxSigns = 1024

// apart is how long after another session's MKD of a directory one is a sign: the connections of one program may send it at once.
const apart = time.Second

// signs are the commands of a job that a second session does not send if the job is one program.
type signs struct {
	sent   map[signKey]sent
	warned bool
}

// signKey is a command and a path.
type signKey struct {
	sign Sign
	path uint64
}

// sent is a command of a session.
type sent struct {
	signKey
	session SessionID
	at      Time
}

var signSeed = maphash.MakeSeed()

func (s *signs) add(c sent) {
	if s.sent == nil {
		s.sent = make(map[signKey]sent)
	}
	if len(s.sent) < maxSigns {
		s.sent[c.signKey] = c
	}
}

// noteSign remembers a command of a job, and writes to the history when two sessions have sent a command that one program sends once.
func (st *State) noteSign(a *acquisition, now Instant, out *outcome) {
	v, s := a.view, a.session
	if a.sign == NoSign || v.signs.warned || v.refused != nil || a.sign == Fetch && v.hold != nil && v.hold.turn == 0 {
		return
	}
	c := sent{signKey{a.sign, maphash.String(signSeed, string(a.path))}, s.owner.Session, now.Boot}
	switch first, known := v.signs.sent[c.signKey]; {
	case !known:
		out.do(func(*State) { v.signs.add(c) })
	case first.session != c.session && (a.sign != Make || now.Boot >= later(first.at, apart)):
		out.do(func(*State) { v.signs.warned = true })
		out.records = append(out.records, Record{
			Kind: Published, Cause: CauseTwoRuns, Hold: Hold{Name: a.name, Token: v.base, Owner: s.owner}, By: s.owner, At: now,
			Note: "two programs seem to run as one job: " + signTexts[a.sign] + " by sessions " + first.session.String() + " and " +
				c.session.String(),
			File: &Publication{Path: a.path},
		})
	}
}
