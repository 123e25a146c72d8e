package lock

import (
	"fmt"
	"io/fs"
	"time"
)

// JobError reports that a job may not change files that an automatic lock protects. It matches fs.ErrPermission.
type JobError struct {
	Lock   Name
	Cause  string // "stale": another job has changed them since this one looked; "held": one changes them; "lost": the lock was taken away
	By     Owner  // the other job, or the administrator who took the lock away
	Token  Token  // of its hold
	Files  int    // with "stale": how many changes it made; 0: not known
	When   time.Time
	Again  time.Duration // with "stale": the job can start again so much later
	Why    error         // with other causes
	Report bool          // the rule only reports: nothing was refused
}

func (e *JobError) Error() string {
	at := e.When.UTC().Format(time.TimeOnly)
	switch e.Cause {
	case "stale":
		files := fmt.Sprintf("%d files, ", e.Files)
		switch e.Files {
		case 0:
			files = ""
		case 1:
			files = "1 file, "
		}
		return fmt.Sprintf("changed by %s (%suntil %s) since you looked; start again in %s", e.By, files, at, e.Again)
	case "held":
		return fmt.Sprintf("being changed by %s since %s", e.By, at)
	case "lost":
		return fmt.Sprintf("lock taken away at %s: %s", at, e.Why)
	}
	return e.Why.Error()
}

// Is makes the error match fs.ErrPermission.
func (e *JobError) Is(target error) bool { return target == fs.ErrPermission }

// ErrAutomatic is the error of a client that releases a lock which its job holds automatically.
var ErrAutomatic error = &kind{"held automatically: it ends with its job, not by RMD", fs.ErrPermission}
