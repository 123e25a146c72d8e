package driver

import (
	"errors"
	"io/fs"
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

// A program on the host makes a directory with the name of a held lock that has none.
func TestALockWhoseNameIsTakenOnTheHostWhileItIsHeld(t *testing.T) {
	s := start(t, plainLocks)
	holder := s.as("phoneacc")
	holder.want("SITE LOCK AS job", "200 *")
	holder.want("MKD /locks/x", "257 *")
	same := s.as("phoneacc")
	same.want("SITE LOCK AS job", "200 *")
	other := s.as("other")
	s.mkdir("/locks/x")
	other.want("MKD /locks/x", "550 /locks/x: held by *")
	same.want("MKD /locks/x", "550 /locks/x: is there already")
	if !s.held("/locks/x") {
		t.Error("it was given back")
	}
	holder.want("RMD /locks/x", "250 *")
	other.want("MKD /locks/x", "550 /locks/x: is there already")
}

func TestALockThatIsFreedAfterTheLookAtIt(t *testing.T) {
	for _, c := range []struct {
		name, occupied string
		err            error
	}{
		{"nothing is there", "", nil},
		{"a directory is", "/dir/x_lock", fs.ErrExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, plainLocks)
			s.mkdir("/dir")
			s.as("other")
			client := s.soleClient()
			holder := s.as("phoneacc")
			holder.want("MKD /dir/x_lock", "257 *")
			at, err := client.survey("/dir/x_lock")
			if err != nil || at.Name != "/dir/x_lock" {
				t.Fatal(at, err)
			}
			holder.want("RMD /dir/x_lock", "250 *")
			if c.occupied != "" {
				s.mkdir(c.occupied)
			}
			_, err = client.acquire(t.Context(), at)
			if !errors.Is(err, c.err) || s.held("/dir/x_lock") != (err == nil) {
				t.Errorf("%v, want %v; held: %v", err, c.err, s.held("/dir/x_lock"))
			}
		})
	}
}
