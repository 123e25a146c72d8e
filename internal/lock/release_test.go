package lock

import (
	"context"
	"errors"
	"testing"
)

// replacedDisk is a Disk on which a program on the host replaces each directory.
type replacedDisk struct{ Disk }

func (replacedDisk) Make(context.Context, Name) (DirectoryID, error) {
	return DirectoryID{Inode: 1}, nil
}

func (replacedDisk) Remove(context.Context, Hold, Cause) (string, error) {
	return "", ErrDirectoryGone
}

func TestReleaseReportsThatAProgramOnTheHostRemovedTheDirectory(t *testing.T) {
	var ends []Cause
	table, err := NewTable(t.Context(), Options{
		Log: new(memoryLog), Disk: replacedDisk{}, Clock: newTestClock(), Rules: mustRules(Rule{Match: "/locks/*"}),
		Observe: func(r *Record) {
			if r.Kind == Ended {
				ends = append(ends, r.Cause)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := table.Open(Owner{Account: "a"})
	if _, _, _, err := s.AcquireOrWait(t.Context(), "/locks/x", nil); err != nil {
		t.Fatal(err)
	}
	var lost *LostError
	if err := s.Release(t.Context(), "/locks/x"); !errors.As(err, &lost) || lost.Cause != CauseHostGone || !errors.Is(err, ErrNotHeld) {
		t.Errorf("the release returns %v", err)
	}
	if len(ends) != 1 || ends[0] != CauseHostGone {
		t.Errorf("the hold ended with %q", ends)
	}
	if err := s.Release(t.Context(), "/locks/x"); err != ErrNotHeld {
		t.Errorf("the second release returns %v", err)
	}
}

func TestAHostsRmdirEndsNoHoldDuringAWrite(t *testing.T) {
	table, _ := newTestTable(t, Rule{Match: "/locks/*"})
	s := table.Open(Owner{Account: "a"})
	h, _, _, err := s.AcquireOrWait(t.Context(), "/locks/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Write(t.Context(), []Write{{Path: "/locks/x/file"}}, func([]Title) error {
		if err := table.HostGone(t.Context(), h); err != nil || !table.Held("/locks/x") {
			t.Errorf("during a write the lock is held: %v; %v", table.Held("/locks/x"), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := table.HostGone(t.Context(), h); err != nil || table.Held("/locks/x") {
		t.Errorf("after the write the lock is held: %v; %v", table.Held("/locks/x"), err)
	}
}
