// Package locktest says what a lock.Store must do, by testing it.
//
// [TestStore] runs the suite against any store. [Moves] are what tests of stores do. [Memory] is the
// reference store: the simplest that passes, with hooks for tests of what is built on a store. [Model]
// is what one lock looks like to its clients, for linearizability checks with porcupine.
//
// What the suite proves of a store: compare-and-swap by revision, one winner of many, tokens that grow over names and
// releases, conflicts that carry the record, names of any bytes, no change after an error, nothing shared with
// the caller. What it does not: that a change lasts, and what Watch tells of others; these are for the
// tests of each store.
//
// Start reading at [TestStore].
package locktest

import (
	"errors"
	"slices"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// TestStore runs the suite, each case with a store of its own from open, whose directories, if it has any, lie in an empty tree.
func TestStore(t *testing.T, open func(t *testing.T) lock.Store) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(&fixture{Moves{TB: t}, open(t)}) })
	}
}

// fixture is a store under test.
type fixture struct {
	Moves
	store lock.Store
}

// hold returns a new hold for the account, to be acquired.
func hold(account string) lock.Hold {
	return lock.Hold{
		Owner: lock.Owner{Account: account, Address: "192.0.2.7", Session: 7, Nonce: "n"},
		Rule:  lock.Rule{Match: "/**", MaxAge: 600e9},
	}
}

// must commits a change that has to succeed.
func (f *fixture) must(name lock.Name, revision lock.Token, holds ...lock.Hold) lock.Token {
	f.Helper()
	token, err := f.Commit(f.store, name, revision, holds...)
	if err != nil || token == 0 {
		f.Fatalf("%q at %d with %d holds: revision %d, %v", name, revision, len(holds), token, err)
	}
	return token
}

// conflict commits a change that has to meet a conflict, and returns the record.
func (f *fixture) conflict(name lock.Name, revision lock.Token, holds ...lock.Hold) lock.Record {
	f.Helper()
	token, err := f.Commit(f.store, name, revision, holds...)
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
	return f.Records(f.store)
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
