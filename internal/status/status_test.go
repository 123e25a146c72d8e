package status

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/job"
)

func TestNamesThatAreNotUTF8HaveASecondKey(t *testing.T) {
	var changed Lock
	changed.setChanges(1, "/f\x80")
	for want, value := range map[string]any{
		`"last_file":"/f\ufffd","last_file_encoded":"/f%80"`: changed,
		`"lock":"/l\ufffd","lock_encoded":"/l%80"`:           RefusedJobs([]job.Refused{{Lock: "/l\x80", Why: &job.Error{Cause: job.Held}}}),
	} {
		var b bytes.Buffer
		if err := Write(&b, value); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %s: %v", &b, want, err)
		}
	}
	var plain bytes.Buffer
	if err := Write(&plain, RefusedJobs([]job.Refused{{Lock: "/ü %", Why: &job.Error{Cause: job.Held}}})); err != nil || strings.Contains(plain.String(), "encoded") {
		t.Errorf("%s has a second key: %v", &plain, err)
	}
}
