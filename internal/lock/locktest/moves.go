package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Ada is who makes the changes of [Moves].
var Ada = lock.Owner{Account: "ada", Address: "192.0.2.1", Session: 7}

// Moves are what the tests of stores do, over and over.
type Moves struct {
	testing.TB
	Clock lock.Clock
}

// Hold returns a hold of the account that begins now.
func (m *Moves) Hold(account string) lock.Hold {
	now := m.Clock.Now()
	owner := Ada
	owner.Account = account
	return lock.Hold{Owner: owner, Acquired: now, Renewed: now, Rule: lock.Rule{Match: "given", MaxAge: time.Minute}}
}

// Commit has the store put holds in the place of what stands at revision; none: released.
func (m *Moves) Commit(store lock.Store, name lock.Name, revision lock.Token, holds ...lock.Hold) (lock.Token, error) {
	cause := lock.CauseAcquire
	if len(holds) == 0 {
		cause = lock.CauseRelease
	}
	return store.Commit(context.Background(), lock.Change{Name: name, If: revision, Holds: holds, Cause: cause, By: Ada})
}

// Acquire acquires a free name, or the test fails.
func (m *Moves) Acquire(store lock.Store, name lock.Name, account string) lock.Token {
	m.Helper()
	token, err := m.Commit(store, name, 0, m.Hold(account))
	if err != nil {
		m.Fatalf("acquire %s: %v", name, err)
	}
	return token
}

// Release releases a name, or the test fails.
func (m *Moves) Release(store lock.Store, name lock.Name, token lock.Token) {
	m.Helper()
	if _, err := m.Commit(store, name, token); err != nil {
		m.Fatalf("release %s: %v", name, err)
	}
}

// Records returns what the store holds.
func (m *Moves) Records(store lock.Store) map[lock.Name]lock.Record {
	m.Helper()
	records := make(map[lock.Name]lock.Record)
	for record, err := range store.All(context.Background()) {
		if err != nil {
			m.Fatalf("All: %v", err)
		}
		if _, twice := records[record.Name]; twice || len(record.Holds) == 0 {
			m.Errorf("All yields %q twice, or without holds", record.Name)
		}
		records[record.Name] = record
	}
	return records
}

// HeldBy checks who holds the name, "" for nobody, and returns the record.
func (m *Moves) HeldBy(store lock.Store, name lock.Name, account string) lock.Record {
	m.Helper()
	record := m.Records(store)[name]
	got := ""
	if len(record.Holds) > 0 {
		got = record.Holds[0].Owner.Account
	}
	if got != account {
		m.Errorf("%s is held by %q, want %q", name, got, account)
	}
	return record
}

// Conflict checks that the error is a conflict with a record held by account ("": by nobody).
func (m *Moves) Conflict(err error, account string) lock.Record {
	m.Helper()
	var conflict *lock.ConflictError
	if !errors.As(err, &conflict) {
		m.Fatalf("got %v, want a conflict", err)
	}
	got := ""
	if len(conflict.Record.Holds) > 0 {
		got = conflict.Record.Holds[0].Owner.Account
	}
	if got != account {
		m.Errorf("the conflict's record is held by %q, want %q", got, account)
	}
	return conflict.Record
}
