package job_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/job"
)

// settle lets acquisitions under a rule that only reports come to their end.
func (s *server) settle(d time.Duration) {
	synctest.Wait()
	for ; d > 0; d -= time.Second {
		s.pass(time.Second)
		synctest.Wait()
	}
}

// A rule that only reports delays and refuses nothing, and notes what the enforced rule would refuse after its wait.
func TestReport(t *testing.T) {
	for name, tc := range map[string]struct {
		program func(s *server)
		want    []string
	}{
		"a look only waits": {func(s *server) {
			a, b := s.connect("a"), s.connect("b")
			a.accepted("1/x")
			s.settle(0)
			b.look("1/x")
			s.settle(time.Second)
			a.accepted("1/y")
			a.close()
			s.settle(4 * time.Second)
			b.accepted("1/x")
			s.settle(0)
			b.close()
		}, nil},
		"a change only waits": {func(s *server) {
			a, b := s.connect("a"), s.connect("b")
			a.accepted("1/x")
			s.settle(0)
			b.accepted("1/y")
			a.close()
			s.settle(20 * time.Second)
			b.close()
		}, nil},
		"a change waits too long": {func(s *server) {
			a, b := s.connect("a"), s.connect("b")
			a.accepted("1/x")
			s.settle(0)
			b.accepted("1/y")
			b.accepted("1/z")
			s.settle(20 * time.Second)
			b.accepted("1/z")
			a.close()
			b.close()
		}, []string{"would be refused: being changed by a@10.0.0.7 since 00:10:00; try when it is done"}},
		"a job is stale": {func(s *server) {
			a, b := s.connect("a"), s.connect("b")
			a.look("1/x")
			s.settle(3 * time.Second)
			b.accepted("1/x")
			s.settle(0)
			b.close()
			s.settle(4 * time.Second)
			a.accepted("1/x")
			a.accepted("1/x")
			s.settle(0)
			a.close()
		}, []string{"would be refused: changed by b@10.0.0.7 (1 file, until 00:10:03) since you looked; list first or wait 2m"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, func(r *job.Rule) { r.Report = true })
				tc.program(s)
				s.settle(5 * time.Second)
				if !slices.Equal(s.remarks, tc.want) {
					t.Errorf("%q", s.remarks)
				}
				if s.held("1") {
					t.Error("the lock does not end")
				}
				s.jobs.Close()
			})
		})
	}
}
