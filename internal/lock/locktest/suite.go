// Package locktest says what a lock.Store must do, by testing it.
//
// [TestStore] runs the suite against any store; [Failures] runs it against one that must fail. [Memory] is the
// reference store: the simplest that passes, with hooks for tests of what is built on a store. [Model]
// is what one lock looks like to its clients, for linearizability checks with porcupine.
//
// What the suite proves of a store: compare-and-swap by revision, one winner of many, tokens that grow over names and
// releases, conflicts that carry the record, names of any bytes, no change after an error, nothing shared with
// the caller. What it does not: that a change lasts, and what Watch tells of others; these are for the
// tests of each store.
//
// Start reading at [Cases].
package locktest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Case is one test of the suite: Run is given an empty store, whose directories, if it has any, lie in an
// empty tree.
type Case struct {
	Name string
	Run  func(t testing.TB, s lock.Store)
}

// TestStore runs the suite, each case with a store of its own from open.
func TestStore(t *testing.T, open func(t *testing.T) lock.Store) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open(t)) })
	}
}

// Failures runs the suite with stores from open and returns the names of the cases that failed, sorted. A suite
// is worth something only if broken stores fail it; t itself does not fail.
func Failures(t testing.TB, open func(t testing.TB) lock.Store) []string {
	return failures(t, open, Cases())
}

func failures(t testing.TB, open func(t testing.TB) lock.Store, cases []Case) []string {
	failed := make(map[string]bool)
	for _, c := range cases {
		r := &recorder{TB: t}
		r.run(func() { c.Run(r, open(t)) })
		if r.Failed() {
			failed[c.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(failed))
}

// fixture is a store under test with the few moves that the cases are made of.
type fixture struct {
	testing.TB
	store lock.Store
}

// hold returns a new hold for the account, to be acquired.
func hold(account string) lock.Hold {
	return lock.Hold{
		Owner: lock.Owner{Account: account, Address: "192.0.2.7", Session: 7, Nonce: "n"},
		Rule:  lock.Rule{Match: "/**", MaxAge: 600e9},
	}
}

func (f *fixture) commit(change lock.Change) (lock.Token, error) {
	if change.Cause == "" {
		change.Cause = lock.CauseAcquire
		if len(change.Holds) == 0 {
			change.Cause = lock.CauseRelease
		}
	}
	return f.store.Commit(context.Background(), change)
}

// must commits a change that has to succeed.
func (f *fixture) must(name lock.Name, revision lock.Token, holds ...lock.Hold) lock.Token {
	f.Helper()
	token, err := f.commit(lock.Change{Name: name, If: revision, Holds: holds})
	if err != nil {
		f.Fatalf("%q at %d with %d holds: %v", name, revision, len(holds), err)
	}
	if token == 0 {
		f.Fatalf("%q at %d: revision 0, which is none", name, revision)
	}
	return token
}

// conflict commits a change that has to meet a conflict, and returns the record.
func (f *fixture) conflict(name lock.Name, revision lock.Token, holds ...lock.Hold) lock.Record {
	f.Helper()
	token, err := f.commit(lock.Change{Name: name, If: revision, Holds: holds})
	var conflict *lock.ConflictError
	if !errors.As(err, &conflict) {
		f.Fatalf("%q at %d: got revision %d and error %v, want a *lock.ConflictError", name, revision, token, err)
	}
	if token != 0 {
		f.Errorf("%q at %d: revision %d together with an error", name, revision, token)
	}
	if conflict.Record.Name != name {
		f.Errorf("the conflict's record is that of %q, want %q", conflict.Record.Name, name)
	}
	return conflict.Record
}

// all returns the records by name.
func (f *fixture) all() map[lock.Name]lock.Record {
	f.Helper()
	records := make(map[lock.Name]lock.Record)
	for record, err := range f.store.All(context.Background()) {
		if err != nil {
			f.Fatalf("All: %v", err)
		}
		if _, twice := records[record.Name]; twice {
			f.Errorf("All yields %q twice", record.Name)
		}
		if len(record.Holds) == 0 {
			f.Errorf("All yields %q, which nobody holds", record.Name)
		}
		records[record.Name] = record
	}
	return records
}

// holders checks who holds the name: by their accounts, in order.
func (f *fixture) holders(name lock.Name, want ...string) {
	f.Helper()
	if got := accounts(f.all()[name]); !slices.Equal(got, want) {
		f.Errorf("%q is held by %q, want %q", name, got, want)
	}
}

func accounts(record lock.Record) []string {
	var names []string
	for _, h := range record.Holds {
		names = append(names, h.Owner.Account)
	}
	return names
}
