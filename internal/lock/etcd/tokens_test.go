//go:build linux

package etcd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestTokensGrowOverTermsAndARaisedBase(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	var last lock.Token
	var epoch uint32
	for range 3 {
		active := s.campaign(c)
		if active.Generation() <= epoch {
			t.Errorf("epoch %d after %d", active.Generation(), epoch)
		}
		epoch = active.Generation()
		for range 3 {
			token := s.Acquire(active, "/a_lock", "ada")
			if token <= last {
				t.Errorf("token %d after %d", token, last)
			}
			last = token
			s.Release(active, "/a_lock", token)
		}
		if _, err := c.RaiseBase(t.Context(), 10); !errors.Is(err, ErrActive) {
			t.Errorf("the base is raised while a server is active: %v", err)
		}
		s.resign(active)
	}
	active := s.campaign(c)
	held := s.Acquire(active, "/held_lock", "ada")
	s.resign(active)
	floor, err := c.RaiseBase(t.Context(), 1<<40)
	if err != nil || floor < 1<<40 {
		t.Fatal(floor, err)
	}
	active = s.campaign(c)
	if token := s.Acquire(active, "/a_lock", "ada"); token <= floor {
		t.Errorf("token %d, not above %d", token, floor)
	}
	record := s.HeldBy(active, "/held_lock", "ada")
	if record.Holds[0].Token != held || record.Revision <= 1<<40 {
		t.Errorf("a held lock has become %+v, token %d", record, held)
	}
	kept := record.Holds[0]
	kept.Renewed.Boot += time.Second
	renewed, err := s.Commit(active, "/held_lock", record.Revision, kept)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.HeldBy(active, "/held_lock", "ada"); got.Holds[0].Token != held || got.Revision != renewed {
		t.Errorf("renewed it is %+v", got)
	}
	s.Release(active, "/held_lock", renewed)
}

// A start loads more locks than come in one reply of etcd.
func TestManyLocksAreLoaded(t *testing.T) {
	s := newScene(t, 3)
	c := s.open(s.options())
	records := make([]lock.Record, 5000)
	for i := range records {
		hold := s.Hold("ada")
		hold.Token = lock.Token(i + 1)
		records[i] = lock.Record{Name: lock.Name(fmt.Sprintf("/many/%07d_lock", i)), Revision: hold.Token, Holds: []lock.Hold{hold}}
	}
	if err := c.Import(t.Context(), records, lock.Token(len(records)), entries(nil, nil)); err != nil {
		t.Fatal(err)
	}
	active := s.campaign(c)
	got := 0
	for record, err := range active.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if record.Name != records[got].Name || record.Holds[0].Token != records[got].Holds[0].Token {
			t.Fatalf("%d: got %+v, want %+v", got, record, records[got])
		}
		got++
	}
	if got != len(records) {
		t.Errorf("%d locks", got)
	}
}
