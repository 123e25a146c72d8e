package job

import (
	"hash/maphash"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Sign is a command that one program sends only once for a path: if two sessions of a job send it, two programs run as one job.
type Sign uint8

// The signs.
const (
	NoSign Sign = iota
	Fetch       // RETR, before the first change
	Make        // MKD
	Store       // STOR
)

var signTexts = [...]string{Fetch: "fetched", Make: "made", Store: "stored"}

const (
	maxSigns       = 1024        // bounds the recorded commands of a job at a site
	parallelWithin = time.Second // connections of one program may send MKD of one directory so soon after each other
)

// signs has the commands of a run that a single program sends only once.
type signs struct {
	commands map[signKey]sentCommand
	warned   bool
}

type signKey struct {
	sign Sign
	path uint64
}

type sentCommand struct {
	session lock.SessionID
	at      lock.Time
}

var signSeed = maphash.MakeSeed()

// note records a command of a session. If another session of the job has sent the same, it returns a warning once.
func (v *visit) note(sign Sign, path lock.Name, by lock.SessionID, now lock.Time) (warning string) {
	s := &v.signs
	if sign == NoSign || s.warned || v.refused != nil || sign == Fetch && v.changed {
		return ""
	}
	k := signKey{sign, maphash.String(signSeed, string(path))}
	switch first, known := s.commands[k]; {
	case !known && len(s.commands) < maxSigns:
		if s.commands == nil {
			s.commands = make(map[signKey]sentCommand)
		}
		s.commands[k] = sentCommand{by, now}
	case known && first.session != by && (sign != Make || now >= first.at+parallelWithin):
		s.warned = true
		return "two programs seem to run as one job: " + signTexts[sign] + " by sessions " + first.session.String() + " and " + by.String()
	}
	return ""
}
