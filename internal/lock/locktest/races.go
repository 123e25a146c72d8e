package locktest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// race runs contenders at once, and returns the token of the one that won; there must be just one.
func (f *fixture) race(n int, name lock.Name, revision lock.Token) lock.Token {
	f.Helper()
	tokens, errs := make([]lock.Token, n), make([]error, n)
	var running sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		running.Go(func() {
			<-begin
			tokens[i], errs[i] = f.Commit(f.store, name, revision, hold(fmt.Sprint(i)))
		})
	}
	close(begin)
	running.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			f.Fatalf("%q: %d and %d both won", name, winner, i)
		case err == nil:
			winner = i
		case !errors.Is(err, lock.ErrConflict):
			f.Fatalf("%q: a loser got %v, want a conflict", name, err)
		}
	}
	if winner < 0 {
		f.Fatalf("%q: nobody won", name)
	}
	f.holders(name, fmt.Sprint(winner))
	return tokens[winner]
}

func oneWinner(f *fixture) {
	for range 20 {
		token := f.race(16, "/a", 0)
		f.must("/a", token)
	}
}

func oneHeir(f *fixture) {
	token := f.must("/a", 0, hold("ada"))
	for range 20 {
		next := f.race(16, "/a", token)
		if next <= token {
			f.Fatalf("revision %d after %d", next, token)
		}
		token = next
	}
}

func sideBySide(f *fixture) {
	const names, rounds = 16, 10
	errs := make([]error, names)
	tokens := make([][]lock.Token, names)
	var running sync.WaitGroup
	for i := range names {
		running.Go(func() { tokens[i], errs[i] = f.turns(lock.Name(fmt.Sprintf("/n%d", i)), rounds) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		f.Fatal(err)
	}
	seen := make(map[lock.Token]bool)
	for _, mine := range tokens {
		if !slices.IsSorted(mine) {
			f.Errorf("revisions of one name do not grow: %v", mine)
		}
		for _, token := range mine {
			if seen[token] {
				f.Errorf("revision %d was given twice", token)
			}
			seen[token] = true
		}
	}
	if all := f.all(); len(all) != 0 {
		f.Errorf("%d names are still held", len(all))
	}
}

// turns acquires and releases the name so many times.
func (f *fixture) turns(name lock.Name, rounds int) (tokens []lock.Token, err error) {
	for range rounds {
		acquired, err := f.Commit(f.store, name, 0, hold("ada"))
		if err != nil {
			return nil, err
		}
		released, err := f.Commit(f.store, name, acquired)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, acquired, released)
	}
	return tokens, nil
}
