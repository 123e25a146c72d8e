package integration

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// Faults of files that are known and not corrected yet.

// A kernel that ends the connections of a killed client takes up to 31 ms between the two on a busy machine.
func TestKnownKilledUploaderIsPublished(t *testing.T) {
	t.Parallel()
	for _, u := range senders {
		if u.need != "" {
			harness.Need(t, u.need)
		}
	}
	s := startServer(t, "[files]\ndurable = false\n"+defaults)
	var faults []error
	for i := range count(1, 40) {
		var all [10]*sending
		for j := range all {
			all[j] = s.send(t, senders[j%len(senders)], s.v4, "I", int64(j)*20_000)
		}
		for _, c := range all { // all at once: the machine is busy
			_ = c.cmd.Process.Kill()
		}
		for j, c := range all {
			<-c.exited
			harness.Await(t, "the temporary goes", func() bool { return len(c.temporaries()) == 0 })
			if got := s.read(c.path); got != "old" {
				faults = append(faults, fmt.Errorf("round %d, %s: %d bytes were published", i, senders[j%len(senders)].name, len(got)))
			}
		}
	}
	harness.Known{Name: "the partial file of a killed uploader is published", Intermittent: true}.Check(t, errors.Join(faults...))
}

// As above, with the gap made by the test.
func TestKnownUploadIsPublishedWhenTheControlConnectionEndsLater(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	s.write("target", "old")
	c := s.session(account)
	data := c.begin("STOR /target")
	if _, err := io.WriteString(data, "a part"); err != nil {
		t.Fatal(err)
	}
	data.Close()
	time.Sleep(31 * time.Millisecond) // the gap is what is tested
	c.Conn.Close()
	harness.Await(t, "the temporary goes", func() bool { return len(s.unfinished()) == 0 })
	var err error
	if got := s.read("target"); got != "old" {
		err = fmt.Errorf("the file has %q", got)
	}
	harness.KnownFailure(t, "an upload is published although its control connection ended 31 ms after its data connection", err)
}
