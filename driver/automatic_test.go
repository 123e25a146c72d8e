package driver

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// automatic makes /www/.deploy-lock an automatic lock of all files in /www.
func automatic(s *setup) {
	s.rules = append([]lock.Rule{automaticRule()}, s.rules...)
	s.jobs = []job.Rule{{Match: s.rules[0].Match, Wait: 15 * time.Second, Turn: 2 * time.Second}}
}

func automaticRule() lock.Rule {
	return lock.Rule{
		Match: "/www/.deploy-lock", MaxAge: time.Hour, MaxIdle: 2 * time.Minute, Grace: 3 * time.Second, AllowCwd: true,
		Protection: &lock.Protection{Paths: []string{"/www/**"}, Automatic: true},
		Contention: &lock.Contention{Wait: 15 * time.Second},
	}
}

func eachJob(s *setup) {
	automatic(s)
	s.jobs[0].Session = true
}

// sites makes a lock for each directory in /sites.
func sites(s *setup) {
	automatic(s)
	s.rules[0].Match, s.rules[0].Protection.Paths = "/sites/*/.deploy-lock", []string{"/sites/$1/**"}
	s.jobs[0].Match = s.rules[0].Match
}

// explicitToo adds a rule whose locks only MKD acquires.
func explicitToo(s *setup) {
	automatic(s)
	s.rules = append([]lock.Rule{{Match: "/www/*_lock", Protection: &lock.Protection{Paths: []string{"/www/$1/*"}}}}, s.rules...)
}

func reports(s *setup) {
	sites(s)
	s.rules[0].Protection.Advises, s.jobs[0].Report = true, true
}

// Clients a and b are jobs of two accounts, a and a2 are sessions of one job.
func TestAutomaticLocks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		setup  func(*setup)
		script string
	}{
		{"the first change acquires the lock, and the end of the job releases it after the grace", automatic, `
			a STOR /www/x <<< 1 => 226 *
			a SITE LOCK INFO /www/.deploy-lock => 211-*\n type=lock;*;automatic=yes;*; /www/.deploy-lock\n211 End
			a NLST -a /www => 226 * >>> /www/x\r\n
			a MLST /www/.deploy-lock => 550 *
			a RMD /www/.deploy-lock => 550 /www/.deploy-lock: held automatically: it ends with its job, not by RMD
			- quit a
			- alone
			- pass 2s
			- held /www/.deploy-lock
			- pass 1s
			- free /www/.deploy-lock
			- file /www/x 1`},
		{"a pattern that leads to protected files is a look", automatic, `
			- write www/x 1
			a NLST /www/* => 226 * >>> /www/x\r\n
			- held /www/.deploy-lock
			- pass 2s
			b NLST /www/x* => 226 * >>> /www/x\r\n
			- held /www/.deploy-lock
			- pass 2s
			a NLST /w* => 226 * >>> /www\r\n
			- free /www/.deploy-lock`},
		{"a look holds the lock for a turn only", automatic, `
			- write www/x 1
			a SIZE /www/x => 213 1
			- held /www/.deploy-lock
			- pass 2s
			- free /www/.deploy-lock
			b SIZE /www/x => 213 1
			a SIZE /www/x => 213 1
			- pass 2s
			a DELE /www/x => 250 *`},
		{"a look waits for the end of another job, and both succeed", automatic, `
			- write www/x 1
			a SIZE /www/x => 213 1
			b SIZE /www/x ...
			- waiting /www/.deploy-lock 1
			b2 MDTM /www/x ...
			b NOOP ...
			a STOR /www/x <<< 22 => 226 *
			- quit a
			- pass 4s
			b => 213 2
			b => 200 *
			b2 => 213 *
			- pass 4s
			- held /www/.deploy-lock
			b DELE /www/x => 250 *`},
		{"a job that waited looks again and is not stale, one that looked before is", automatic, `
			- write www/x 1
			a SIZE /www/x => 213 1
			- pass 2s
			b SIZE /www/x => 213 1
			- pass 2s
			b STOR /www/x <<< 2 => 226 *
			a DELE /www/x => 550 /www/x: being changed by other@127.0.0.1 since 00:00:04; try when it is done
			a MKD /www/d => 550 /www/d: being changed by other@127.0.0.1 *
			a RNFR /www/x => 550 *
			a STOR /www/y => 550 *
			a2 SIZE /www/x => 213 1
			a2 DELE /www/x => 550 *
			b STOR /www/y => 226 *
			- file /www/x 2`},
		{"a change waits, and then every change of the job is refused", automatic, `
			a STOR /www/x <<< 1 => 226 *
			b DELE /www/x ...
			- waiting /www/.deploy-lock 1
			- pass 15s
			b => 550 /www/x: being changed by phoneacc@127.0.0.1 since 00:00:00; try when it is done
			- quit a
			- pass 4s
			b DELE /www/x => 550 /www/x: was being changed by phoneacc@127.0.0.1 since 00:00:00; list first or wait 2m
			b2 DELE /www/x => 550 *
			- quit b
			- quit b2
			- alone
			- pass 2s
			b SIZE /www/x => 213 1
			b DELE /www/x => 550 *
			- quit b
			- alone
			- pass 4s
			b DELE /www/x => 550 *
			- quit b
			- alone
			- pass 4s
			b SIZE /www/x => 213 1
			b DELE /www/x => 250 *`},
		{"a refused job starts anew after two minutes", automatic, `
			- write www/x 1
			a SIZE /www/x => 213 1
			- pass 2s
			b STOR /www/x <<< 22 => 226 *
			- quit b
			- pass 4s
			a DELE /www/x => 550 *
			- quit a
			- alone
			- pass 1m30s
			a DELE /www/x => 550 *
			- quit a
			- alone
			- pass 2m
			a DELE /www/x => 250 *`},
		{"a program verifies its upload, and works a minute later", automatic, `
			a STOR /www/x <<< 1 => 226 *
			a RETR /www/x => 226 * >>> 1
			- quit a
			- alone
			- pass 4s
			b STOR /www/x <<< 22 => 226 *
			b RETR /www/x => 226 * >>> 22
			- quit b
			- alone
			- pass 1m
			a STOR /www/x <<< 333 => 226 *
			- file /www/x 333`},
		{"the lock of a site ends while its job works at another one", sites, `
			- mkdir sites/1
			- mkdir sites/2
			a SIZE /sites/1/x => 550 *
			a STOR /sites/1/x <<< 1 => 226 *
			- pass 1m
			a STOR /sites/2/x <<< 1 => 226 *
			- pass 1m30s
			- free /sites/1/.deploy-lock
			- held /sites/2/.deploy-lock
			b STOR /sites/1/x <<< 22 => 226 *
			- quit b
			- pass 4s
			a STOR /sites/1/x <<< 333 => 550 /sites/1/x: changed by other@127.0.0.1 (1 file, until 00:02:30) since you looked; list first or wait 2m
			a STOR /sites/2/x <<< 333 => 226 *
			- file /sites/1/x 22`},
		{"a lock by MKD wins over an automatic one", explicitToo, `
			- mkdir www/db
			a STOR /www/db/x => 550 /www/db/x: protected by the lock /www/db_lock, which you do not hold
			- free /www/.deploy-lock
			b STOR /www/y <<< 1 => 226 *
			a MKD /www/db_lock => 257 *
			a STOR /www/db/x <<< 1 => 226 *
			- file /www/db/x 1`},
		{"an upload under a broken lock is aborted", automatic, `
			a STOR /www/x <<< 1 ...
			- moving 1
			- break /www/.deploy-lock
			a => 426 *
			a STOR /www/x => 550 *
			- file /www/x (none)`},
		{"MKD and listing of the protected directory itself", automatic, `
			a MKD /www => 550 *
			- held /www/.deploy-lock
			b MLST /www ...
			- waiting /www/.deploy-lock 1
			- quit a
			- pass 4s
			b => 250*`},
		{"MKD of the protected directory is a look, too", automatic, `
			- write www/x 1
			a SIZE /www/x => 213 1
			- quit a
			- alone
			- pass 4s
			b STOR /www/x <<< 2 => 226 *
			- quit b
			- alone
			- pass 4s
			a MKD /www => 550 *
			a DELE /www/x => 250 *`},
		{"the job removes a directory in which its own lock lies", sites, `
			- write sites/gone/x 1
			a DELE /sites/gone/x => 250 *
			a RNFR /sites/gone => 350 *
			a RMD /sites/gone => 250 *
			- held /sites/gone/.deploy-lock`},
		{"a rule that only reports bars no removal of a directory", reports, `
			- write sites/gone/x 1
			a DELE /sites/gone/x => 250 *
			b RMD /sites/gone => 250 *
			- held /sites/gone/.deploy-lock`},
		{"a look counts for ten minutes, a refusal for two without a session", automatic, `
			- write www/x 1
			a SIZE /www/x => 213 1
			- quit a
			- alone
			- pass 4s
			b STOR /www/x <<< 22 => 226 *
			- quit b
			- alone
			- pass 6m
			a STOR /www/x => 550 /www/x: changed by other@127.0.0.1 (1 file, until 00:00:04) since you looked; list first or wait 2m
			- quit a
			- alone
			- pass 4m
			a STOR /www/x <<< 333 => 226 *`},
		{"read-only accounts never wait", automatic, `
			a STOR /www/x <<< 1 => 226 *
			reader SIZE /www/x => 213 1
			reader RETR /www/x => 226 * >>> 1`},
		{"a session of its own is a job", eachJob, `
			a STOR /www/x <<< 1 => 226 *
			a2 DELE /www/x ...
			- waiting /www/.deploy-lock 1
			- pass 15s
			a2 => 550 /www/x: being changed by phoneacc@*
			- quit a2
			- pass 2s
			a3 DELE /www/x => 550 *
			- quit a3
			- pass 1s
			- quit a
			- pass 4s
			a4 DELE /www/x => 550 *
			- quit a4
			- pass 4s
			a5 SIZE /www/x => 213 1
			a5 DELE /www/x => 250 *`},
		{"one job key makes one job", eachJob, `
			a SITE LOCK AS one => 200 *
			a2 SITE LOCK AS one => 200 *
			a STOR /www/x <<< 1 => 226 *
			a2 DELE /www/x => 250 *`},
		{"the changes of a job with a job key count as its look", automatic, `
			a SITE LOCK AS run1 => 200 *
			a STOR /www/x <<< 1 => 226 *
			- quit a
			- pass 4s
			b STOR /www/x <<< 22 => 226 *
			- quit b
			- pass 4s
			a SITE LOCK AS run1 => 200 *
			a STOR /www/y => 550 /www/y: changed by other@127.0.0.1 (1 file, until *) since you looked; list first or wait 2m
			- file /www/x 22`},
		{"the job renames its directories", automatic, `
			a MKD /www/d => 257 *
			a STOR /www/d/x <<< 1 => 226 *
			a RNFR /www/d => 350 *
			a RNTO /www/e => 250 *
			- file /www/e/x 1`},
	} {
		t.Run(tc.name, func(t *testing.T) { inBothModes(t, tc.script, tc.setup) })
	}
}

// A directory of the host with the name of an automatic lock excludes jobs.
func TestAHostDirectoryExcludesJobs(t *testing.T) {
	s := start(t, automatic)
	reaping, end := context.WithCancel(t.Context())
	var reaper sync.WaitGroup
	reaper.Go(func() { // ends the wait after the last check of the directory
		for reaping.Err() == nil {
			s.table.Expire(reaping)
			time.Sleep(time.Millisecond)
		}
	})
	defer reaper.Wait()
	defer end()
	s.play(t, `
		- mkdir www/.deploy-lock
		a MKD /www/d ...
		- waiting /www/.deploy-lock 1
		- pass 15s
		a => 550 /www/d: *`)
}

// During a suspension a change of a protected file may be tried again, before and after the first change of a job.
func TestASuspendedServerAsksJobsToTryAgain(t *testing.T) {
	s := start(t, automatic)
	s.play(t, `
		- write www/x 1
		- suspend
		a STOR /www/x => 451 /www/x: not now: etcd does not answer; nothing was changed; list first or wait 2m
		a DELE /www/x => 451 /www/x: not now: etcd does not answer; nothing was changed; list first or wait 2m
		- resume
		a STOR /www/x => 451 /www/x: not now: etcd does not answer; nothing was changed; list first or wait 2m
		- quit a
		b SIZE /www/x => 213 1
		b STOR /www/x <<< 22 => 226 *
		- suspend
		b STOR /www/x => 451 /www/x: not now: etcd does not answer; nothing was changed, try again
		b DELE /www/x => 451 /www/x: not now: etcd does not answer; nothing was changed, try again
		- resume
		b DELE /www/x => 250 *`)
}
