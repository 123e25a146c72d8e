package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

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

// lacksFile returns an error unless the file lies in the lock and prevents its release.
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

// TestAKillDuringAnAdoptionLeavesTheFilesInTheLock kills a server without directories of locks. The first file in a lock makes its directory.
func TestAKillDuringAnAdoptionLeavesTheFilesInTheLock(t *testing.T) {
	t.Parallel()
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
			t.Errorf("kill %d: %v", i, err)
		}
		s.stop()
	}
}
