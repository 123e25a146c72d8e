package journal

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// countingTree counts the looks that are for a grant.
type countingTree struct {
	stepTree
	looks *int
}

func (c countingTree) Vacant(name string) bool {
	*c.looks++
	return c.stepTree.Vacant(name)
}

func TestANameWhoseDirectoryWasRemovedHereIsNotLookedAt(t *testing.T) {
	s := newScene(t)
	looks := 0
	s.options = func(o *Options) { o.FS = countingTree{stepTree{s.tree}, &looks} }
	store := s.mustOpen()
	for range 3 {
		s.release(store, "/a_lock", s.acquire(store, "/a_lock", "ada"))
	}
	if looks != 1 {
		t.Errorf("%d looks for three grants, want 1", looks)
	}
	s.acquire(store, "/b_lock", "ada")
	if looks != 2 {
		t.Errorf("%d looks, want 2 with another name", looks)
	}
}

// A client that tries over and over what cannot be had fills no journal.
func TestATryInVainAfterAReleaseIsJournaledOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*scene)
		err   error
	}{
		{"the host has made a lock", func(s *scene) { s.mkdir("/d/a_lock") }, lock.ErrConflict},
		{"the host has made a file", func(s *scene) { s.write("/d/a_lock") }, lock.ErrNotDirectory},
		{"the host has removed the parent", func(s *scene) { s.rmdir("/d") }, lock.ErrNoParent},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			s.mkdir("/d")
			store := s.mustOpen()
			s.release(store, "/d/a_lock", s.acquire(store, "/d/a_lock", "ada"))
			c.spoil(s)
			for range 5 {
				_, err := s.commit(store, "/d/a_lock", 0, s.hold("ben"))
				if !errors.Is(err, c.err) {
					t.Errorf("%v, want %v", err, c.err)
				}
			}
			if n := strings.Count(s.journal(), `"undo"`); n > 1 {
				t.Errorf("%d grants were undone", n)
			}
			if holder := s.records(store)["/d/a_lock"]; len(holder.Holds) > 0 && !holder.Holds[0].Host() {
				t.Errorf("held by %+v", holder)
			}
		})
	}
}

func TestNotAllFreedNamesAreKeptInMind(t *testing.T) {
	var f freed
	for i := range freedMax + 10 {
		f.put(lock.Name(fmt.Sprint(i)))
	}
	if len(f.names) > freedMax || !f.take(lock.Name(fmt.Sprint(freedMax+9))) {
		t.Errorf("%d are kept", len(f.names))
	}
}
