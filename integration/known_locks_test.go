package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// Two connections of one job. The second one adopts the lock and breaks before it reads the reply. Whichever of the two holds
// stands then, the lock is the job's.
func TestAnAdoptionThatNobodyReadsLeavesTheLockHeld(t *testing.T) {
	t.Parallel()
	s := startServer(t, hour)
	first, look := s.session(account), s.session("other")
	first.Want(200, "SITE LOCK AS word")
	first.Want(257, "MKD /locks/job")
	for i := range count(50, 500) {
		second := s.session(account)
		second.Want(200, "SITE LOCK AS word")
		if err := second.Send("MKD /locks/job"); err != nil {
			t.Fatal(err)
		}
		if err := second.Conn.Close(); err != nil {
			t.Fatal(err)
		}
		harness.Await(t, "the second connection ends", func() bool { return len(s.sessions(account)) == 1 })
		if r, err := look.Try("SITE LOCK INFO /locks/job"); err != nil || r.Code != 211 {
			t.Fatalf("after %d adoptions: %v, %v", i+1, r, err)
		}
	}
}

// A limit is one of names and directories. Another spelling of the same glob lets no further lock in.
func TestALimitHoldsAfterAReloadThatSpellsTheGlobDifferently(t *testing.T) {
	t.Parallel()
	const rule = "[[lock]]\nmatch = %q\nlimit = 1\n"
	s := startServer(t, fmt.Sprintf(rule, "/slots/*/*"))
	s.write("slots/p/.keep", "")
	first, second := s.session(account), s.session("other")
	first.Want(257, "MKD /slots/p/1")
	second.Want(550, "MKD /slots/p/2", "there may be 1 such locks")
	s.configure(fmt.Sprintf(rule, "/slots/*/{*,?*}"))
	s.mustReload()
	second.Want(550, "MKD /slots/p/2", "there may be 1 such locks")
	first.Want(250, "RMD /slots/p/1")
	second.Want(257, "MKD /slots/p/2", "token")
}

// A group ends by the idle time and the grace of its own rule, and its members before it, whatever their rules say.
func TestAGroupWithMembersEndsWithItsJob(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]string{
		"idle":  "max_idle = \"1m\"\n",
		"grace": "max_idle = \"0\"\non_disconnect = \"release\"\ngrace = \"1m\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, clock := startStepped(t, "[[lock]]\nmatch = \"/groups/*\"\nmax_age = \"0\"\n"+rule+"[[lock]]\nmatch = \"/groups/*/*\"\nmax_age = \"0\"\nmax_idle = \"0\"\n")
			job := s.session(account)
			job.Want(257, "MKD /groups/alone")
			job.Want(257, "MKD /groups/g")
			job.Want(257, "MKD /groups/g/member")
			job.Want(221, "QUIT")
			harness.Await(t, "the job ends", func() bool { return len(s.sessions(account)) == 0 })
			clock.pass(2 * time.Minute)
			next := s.session("other")
			next.Want(257, "MKD /groups/alone") // a group without members does
			next.Want(257, "MKD /groups/g")
		})
	}
}
