package driver

import (
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Programs tell "somebody has it" from "you may not" by CWD, also while a free lock is kept for one that came earlier.
func TestCwdIntoALockThatIsKeptForAnother(t *testing.T) {
	kept := func(o *setup) {
		o.rules = []lock.Rule{{Match: "/open/**", MaxAge: 6 * time.Minute, AllowCwd: true, Contention: &lock.Contention{Queue: lock.QueueFair, QueueHold: 30 * time.Second}}}
	}
	for name, mode := range map[string]func(*setup){"directories": func(*setup) {}, "no directories": plainLocks} {
		t.Run(name, func(t *testing.T) {
			s := start(t, mode, kept)
			a, b, c := s.as("phoneacc"), s.as("other"), s.as("boss")
			a.want("MKD /open/x", "257 *")
			b.want("MKD /open/x", "550 *")
			s.pass(time.Second) // the lock is kept for three times as long as lies between tries
			b.want("MKD /open/x", "550 *place 1 of 1*")
			a.want("RMD /open/x", "250 *")
			c.want("MKD /open/x", "550 *")
			c.want("CWD /open/x", "250 *")
			c.want("CWD /open/y", "550 *")
			b.want("MKD /open/x", "257 *")
		})
	}
}

// A job that reads and writes files lives; one that looks does not.
func TestOnlyWorkIsASignOfLifeOfAnEndedSession(t *testing.T) {
	const idleTime = time.Minute
	idleRule := func(o *setup) { o.rules = []lock.Rule{{Match: "/idle/*", MaxIdle: idleTime}} }
	for line, works := range map[string]bool{
		"STOR /f": true, "RETR /f": true, "DELE /g": true, "MKD /dir": true, "LIST /": false, "RETR /idle/a/whose": false, "MKD /idle/a": false,
		"NOOP": false, "CWD /": false, "MLST /f": false,
	} {
		t.Run(line, func(t *testing.T) {
			s := start(t, plainLocks, idleRule)
			s.write("/f", "x")
			s.write("/g", "x")
			a := s.as("phoneacc")
			a.want("MKD /idle/a", "257 *")
			a.store("/idle/a/whose", "mine")
			a.want("QUIT", "221 *")
			s.alone()
			s.pass(idleTime / 2)
			b := s.as("phoneacc")
			switch line[:4] {
			case "STOR":
				b.store("/f", "new")
			case "RETR", "LIST":
				b.fetch(line)
			default:
				b.ask(line)
			}
			s.pass(idleTime * 3 / 4)
			if s.held("/idle/a") != works {
				t.Errorf("%s: held %t", line, !works)
			}
		})
	}
}
