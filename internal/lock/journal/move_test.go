package journal

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// stopped takes the state directory of the scene, on which no server is.
func (s *scene) stopped() *Stopped {
	s.Helper()
	if err := os.MkdirAll(s.state, 0o700); err != nil {
		s.Fatal(err)
	}
	stopped, err := OpenStopped(s.state)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { stopped.Close() })
	return stopped
}

// lived is a state directory of some starts: two locks are held, one of them with a directory, and others were.
func lived(t *testing.T) *scene {
	s := newScene(t)
	for range 3 {
		store := s.mustOpen()
		s.Release(store, "/gone_lock", s.Acquire(store, "/gone_lock", "ada"))
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	store := s.mustOpen()
	held := s.Acquire(store, "/a_lock", "ada")
	s.Acquire(store, "/b_lock", "ben")
	if err := store.SetDirectory("/a_lock", held, lock.DirectoryID{Inode: 5}); err != nil {
		t.Fatal(err)
	}
	if err := store.Published(context.Background(), lock.Publication{Lock: "/a_lock", Token: held, By: locktest.Ada, File: "/a.tsv", Bytes: 7, SHA256: "00"}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

// all collects a history.
func all(t *testing.T, history iter.Seq2[lock.Entry, error]) (entries []lock.Entry) {
	t.Helper()
	for e, err := range history {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

func lines(all ...lock.Entry) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// What stands is what the records say, whatever lines the history lacks. The sessions of the next start are new.
func TestAHistoryWithGapsMakesNoLock(t *testing.T) {
	s := newScene(t)
	hold := s.Hold("ada")
	hold.Token, hold.Owner.Session = 4, 5<<32|1
	stopped := s.stopped()
	err := stopped.Import(s.clock.Now(), []lock.Record{{Name: "/b_lock", Revision: 4, Holds: []lock.Hold{hold}}}, 9, lines(
		lock.Entry{Cause: lock.CauseAcquire, Name: "/a_lock", Token: 2, Holds: []lock.Hold{hold}},
		lock.Entry{Cause: lock.CauseRelease, Name: "/b_lock", Token: 3},
	))
	if err != nil {
		t.Fatal(err)
	}
	stopped.Close()
	store := s.mustOpen()
	s.HeldBy(store, "/a_lock", "")
	s.HeldBy(store, "/b_lock", "ada")
	if got := store.Generation(); got != 6 {
		t.Errorf("generation %d, want 6", got)
	}
	if got := s.causes("/a_lock"); !slices.Equal(got, []string{"acquire"}) {
		t.Errorf("history %q", got)
	}
}

// A server of several keeps its locks in another store: its state directory is for no other server, and one with locks is not for it.
func TestAClaimedDirectoryIsForNoServerWithoutTheOtherStore(t *testing.T) {
	s := newScene(t)
	if err := os.MkdirAll(s.state, 0o700); err != nil {
		t.Fatal(err)
	}
	claim, err := Claim(s.state)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Claim(s.state); err == nil {
		t.Error("two servers have it")
	}
	claim.Close()
	if _, err := s.open(); err == nil || !strings.Contains(err.Error(), "are in another store: is the section [etcd] missing?") {
		t.Errorf("Open: %v", err)
	}
	stopped := s.stopped()
	if err := stopped.Import(s.clock.Now(), nil, 0, lines()); err != nil {
		t.Fatal(err)
	}
	stopped.Close()
	s.mustOpen().Close()
	if _, err := Claim(s.state); err == nil || !strings.Contains(err.Error(), "ftplockd migrate --to etcd") {
		t.Errorf("Claim of a directory with a journal: %v", err)
	}
	if err := os.Remove(filepath.Join(s.state, "journal.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.open(); err != nil && strings.Contains(err.Error(), "another store") {
		t.Errorf("the claim outlived the move: %v", err)
	}
}

// What is on the disk while an import is under way, as a kill would leave it, is a state directory into which the next one goes.
func TestAnImportThatWasKilledIsDoneAgain(t *testing.T) {
	from, to, killed := lived(t), newScene(t), newScene(t)
	records, last, history, err := from.stopped().Export()
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != 2 || records[0].Holds[0].Directory.Inode != 5 || last < records[1].Revision {
		t.Errorf("records %+v, last token %d", records, last)
	}
	err = to.stopped().Import(to.clock.Now(), records, last, func(yield func(lock.Entry, error) bool) {
		lines := 0
		for e, err := range history {
			if lines++; lines == 5 {
				err := os.WriteFile(stateDir(to.state).temporary(), []byte("half a line"), 0o600)
				if err := errors.Join(err, os.CopyFS(killed.state, os.DirFS(to.state))); err != nil {
					t.Fatal(err)
				}
			}
			if !yield(e, err) {
				return
			}
		}
	})
	stopped := killed.stopped()
	if err := errors.Join(err, stopped.Import(killed.clock.Now(), records, last, history)); err != nil {
		t.Fatal(err)
	}
	stopped.Close()
	store := killed.mustOpen()
	if got := killed.Records(store); len(got) != 2 || !reflect.DeepEqual(got["/a_lock"], records[0]) || !reflect.DeepEqual(got["/b_lock"], records[1]) {
		t.Errorf("after the move %+v, want %+v", got, records)
	}
	if before, after := all(t, history), all(t, History(killed.state, "")); len(before) != 9 || !reflect.DeepEqual(before, after) {
		t.Errorf("the history was\n%+v and is\n%+v", before, after)
	}
	if got := killed.causes("/a.tsv"); !slices.Equal(got, []string{"publish"}) {
		t.Errorf("the history of a file: %q", got)
	}
	if token := killed.Acquire(store, "/c_lock", "eve"); token <= last {
		t.Errorf("token %d after %d", token, last)
	}
}
