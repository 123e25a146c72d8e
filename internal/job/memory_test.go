package job_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/job"
)

func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }

// Clients that touch no site, or change a site without a look, are forgotten at once.
func TestManyClientsAreForgotten(t *testing.T) {
	s := newServer(t)
	for i := range 20_000 {
		s.connectFrom("a", address(i), "").close()
	}
	for i := range 2_000 {
		c := s.connectFrom("a", address(i), "")
		c.accepted("1/x")
		c.close()
		s.pass(3 * time.Second)
	}
	s.connect("a").close()
	if n := s.jobs.Remembered(); n != 0 {
		t.Errorf("%d things are remembered", n)
	}
}

// So many jobs look that the first ones are forgotten. They count as having seen nothing since.
func TestAForgottenLookCounts(t *testing.T) {
	for _, each := range []bool{false, true} {
		s := newServer(t, func(r *job.Rule) { r.Turn, r.Session = 0, each })
		look := func(i int) {
			c := s.connectFrom("a", address(i), "")
			c.look("1/x")
			c.close()
		}
		look(1)
		b := s.connect("b")
		b.accepted("1/x")
		b.close()
		s.pass(4 * time.Second)
		for i := range 20_000 {
			look(i + 2)
		}
		if n := s.jobs.Remembered(); n > 31_000 {
			t.Errorf("%d things are remembered", n)
		}
		c := s.connectFrom("a", address(1), "")
		c.refused("1/x", "changed by b@10.0.0.7")
		c.close()
		s.pass(11 * time.Minute)
		look(2)
		c = s.connectFrom("a", address(1), "")
		c.accepted("1/x")
		c.close()
	}
}

func TestAJobForgetsTheOldestOfTooManySites(t *testing.T) {
	s := newServer(t, func(r *job.Rule) { r.Turn = 0 })
	a, b := s.connect("a"), s.connect("b")
	for i := range 70 {
		a.look(fmt.Sprintf("%d/x", i))
		s.clock.Advance(time.Second)
	}
	if n := s.jobs.Remembered(); n > 200 {
		t.Errorf("%d things are remembered", n)
	}
	b.accepted("0/x")
	b.accepted("69/x")
	b.close()
	s.pass(4 * time.Second)
	a.refused("0/x", "changed by b")
	a.refused("69/x", "changed by b")
	a.close()
}
