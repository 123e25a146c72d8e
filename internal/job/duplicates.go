package job

import (
	"hash/maphash"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Command is a command that one program sends only once for a path: if two sessions of a job send it, two programs run as one job.
type Command uint8

// The commands.
const (
	AnyCommand Command = iota
	Fetch              // RETR, before the first change
	Make               // MKD
	Store              // STOR
)

var commandTexts = [...]string{Fetch: "fetched", Make: "made", Store: "stored"}

const (
	maxCommands    = 1024        // bounds the recorded commands of a job at a site
	parallelWithin = time.Second // connections of one program may send MKD of one directory so soon after each other
)

// duplicates has the commands of a run that a single program sends only once.
type duplicates struct {
	commands map[commandKey]sentCommand
	warned   bool
}

type commandKey struct {
	command Command
	path    uint64
}

type sentCommand struct {
	session lock.SessionID
	at      lock.Time
}

var pathSeed = maphash.MakeSeed()

// note records a command of a session. If another session of the job has sent the same, it returns a warning once.
func (v *visit) note(command Command, path lock.Name, by lock.SessionID, now lock.Time) (warning string) {
	s := &v.duplicates
	if command == AnyCommand || s.warned || v.refused != nil || command == Fetch && v.changed {
		return ""
	}
	k := commandKey{command, maphash.String(pathSeed, string(path))}
	switch first, known := s.commands[k]; {
	case !known && len(s.commands) < maxCommands:
		if s.commands == nil {
			s.commands = make(map[commandKey]sentCommand)
		}
		s.commands[k] = sentCommand{by, now}
	case known && first.session != by && (command != Make || now >= first.at+parallelWithin):
		s.warned = true
		return "two programs seem to run as one job: " + commandTexts[command] + " by sessions " + first.session.String() + " and " + by.String()
	}
	return ""
}
