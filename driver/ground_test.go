package driver

import (
	"errors"
	"testing"

	"github.com/ftplockd/ftplockd/lock"
)

// A lock without a directory, in a directory that goes away between the look at it and the grant.
func TestALockIsNotLeftWithoutADirectoryAboveIt(t *testing.T) {
	for _, c := range []struct {
		name, command string
		err           error
	}{
		{"nothing goes away", "NOOP", nil},
		{"another one goes away", "RMD /other", nil},
		{"its own is removed", "RMD /dir", lock.ErrNoParent},
		{"its own is renamed", "RNFR /dir\r\nRNTO /new", lock.ErrNoParent},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, plainLocks)
			s.mkdir("/dir")
			s.mkdir("/other")
			s.as("phoneacc")
			client := s.soleClient()
			at, err := client.survey("/dir/x_lock")
			if err != nil || !at.Roofed {
				t.Fatal(at, err)
			}
			other := s.as("other")
			other.ask(c.command)
			if c.command[:2] == "RN" {
				other.reply()
			}
			made, err := client.acquire(t.Context(), at)
			if !errors.Is(err, c.err) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if held := s.held("/dir/x_lock"); held != (err == nil) || !made.lock {
				t.Errorf("held: %v", held)
			}
		})
	}
}

// soleClient returns the one that is logged in.
func (s *server) soleClient() *client {
	s.t.Helper()
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	for session := range s.driver.sessions {
		session.mu.Lock()
		defer session.mu.Unlock()
		if session.client != nil {
			return session.client
		}
	}
	s.t.Fatal("nobody is logged in")
	return nil
}
