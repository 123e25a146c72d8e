package integration

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// Faults of files that are known and not corrected yet.

const withoutDirectories = "[locks]\ndirectories = false\n" + defaults

// startJob takes a lock without a directory, puts an acknowledged file into it, and returns sessions of its job.
func startJob(s *server) (sessions [3]*session) {
	s.t.Helper()
	for i := range sessions {
		sessions[i] = s.session(account)
		sessions[i].Want(200, "SITE LOCK AS job")
	}
	sessions[0].Want(257, "MKD /locks/job")
	sessions[0].stores("/locks/job/file", "content")
	return sessions
}

// lacksFile returns an error unless the file lies in the lock, and keeps that from being given back.
func (s *session) lacksFile() error {
	listing, err := s.Retrieve("NLST /locks/job")
	if err == nil && !strings.Contains(string(listing), "/locks/job/file") {
		err = fmt.Errorf("the acknowledged file is not listed, only %q", listing)
	}
	r, rerr := s.Try("RMD /locks/job")
	if rerr == nil && r.Code != 550 {
		rerr = fmt.Errorf("RMD of a lock with a file in it: %v", r)
	}
	return errors.Join(err, rerr)
}

// The journal has the new token, and the hidden directory the old one. A package test of driver has the fault without a kill.
func TestKnownAKillDuringAnAdoptionPutsFilesAside(t *testing.T) {
	t.Parallel()
	var faults []error
	for i := range count(5, 40) {
		s := newServer(t, withoutDirectories)
		s.errorsExpected = true
		s.start()
		job := startJob(s)
		killed := time.AfterFunc(time.Duration(20+rand.IntN(20))*time.Millisecond, func() { _ = s.cmd.Process.Kill() })
		for n := 1; ; n++ {
			if _, err := job[n%2].Ask("MKD /locks/job"); err != nil {
				break
			}
		}
		killed.Stop()
		<-s.exited
		s.start()
		c := s.session(account)
		c.Want(200, "SITE LOCK AS job")
		if err := c.lacksFile(); err != nil {
			faults = append(faults, fmt.Errorf("kill %d: %w", i, err))
		}
		s.stop()
	}
	harness.Known{Name: "after a SIGKILL during an adoption, files of a held lock are in the leftovers", Intermittent: true}.Check(t, errors.Join(faults...))
}

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
