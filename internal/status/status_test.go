package status

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestNamesThatAreNotUTF8HaveASecondKey(t *testing.T) {
	for want, value := range map[string]any{
		`"last_file":"/f\ufffd","last_file_encoded":"/f%80"`: hold(lock.Status{Last: "/f\x80"}, lock.Hold{Automatic: true, Rule: &lock.Rule{}}, lock.Instant{}),
		`"lock":"/l\ufffd","lock_encoded":"/l%80"`:           RefusedJobs([]lock.RefusedJob{{Lock: "/l\x80", Why: &lock.JobError{Cause: "held"}}}),
	} {
		var b bytes.Buffer
		if err := Write(&b, value); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %s: %v", &b, want, err)
		}
	}
}
