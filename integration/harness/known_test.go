package harness

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// recorder is a test that keeps its result for another one.
type recorder struct {
	testing.TB
	log    string
	failed bool
}

func (r *recorder) Helper() {}

func (r *recorder) Logf(format string, args ...any) { r.log += fmt.Sprintf(format, args...) }

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = true
	r.Logf(format, args...)
}

func TestKnownFailure(t *testing.T) {
	fault := errors.New("the file is gone")
	for _, c := range []struct {
		name         string
		intermittent bool
		err          error
		fails        bool
		log          string
	}{
		{"fault occurs", false, fault, false, "the file is gone"},
		{"fault is gone", false, nil, true, "remove the mark"},
		{"intermittent fault occurs", true, fault, false, "the file is gone"},
		{"intermittent fault does not occur", true, nil, false, "did not occur"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{}
			Known{Name: "lost file", Intermittent: c.intermittent}.Check(r, c.err)
			if r.failed != c.fails {
				t.Errorf("the test failed: %v, want %v", r.failed, c.fails)
			}
			for _, want := range []string{"known failure: lost file", c.log} {
				if !strings.Contains(r.log, want) {
					t.Errorf("the log %q lacks %q", r.log, want)
				}
			}
		})
	}
}
