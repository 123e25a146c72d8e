package driver

import (
	"sync"
	"time"
)

// owners knows the owner of each control connection of this machine that was worth the search. A search looks at all processes of the machine, so
// it is made for sessions that have waited, for all of them at once, beside the uploads that wait; never are there two, and all
// together have a small part of one processor. The zero value looks for nobody.
type owners struct {
	search   func(wanted, all []ends) map[ends]*owner // as findOwners
	sessions func() []ends                            // all of this machine's

	searches sync.WaitGroup
	many     turnstile // of processes with many threads, see owner.watch

	mu        sync.Mutex
	of        map[ends]*candidate // sessions that have waited, by their clients' ends, until they end
	searching bool
	notBefore time.Time
	closed    bool
}

// candidate is a session whose owner is worth knowing, or will be.
type candidate struct {
	owner   *owner // nil: not found
	again   time.Time
	backoff time.Duration // before the next search but one
}

const (
	searchShare  = 10          // searches take one of so many parts of the time
	firstBackoff = time.Second // after a search in vain, and twice that after the next
	lastBackoff  = time.Minute
	maxMisses    = 16 // then it is looked for anew
)

// known returns the owner of a connection if it was found. It is the caller's until its upload has ended, or until lose.
func (o *owners) known(client ends) *owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.of[client]; s != nil {
		return s.owner
	}
	return nil
}

// waited says that an upload had to wait, and has owners looked for if it is time.
func (o *owners) waited(client ends) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.search == nil || o.closed {
		return
	}
	if o.of == nil {
		o.of = make(map[ends]*candidate)
	}
	s := o.of[client]
	if s == nil {
		s = &candidate{backoff: firstBackoff}
		o.of[client] = s
	}
	now := time.Now()
	if o.searching || now.Before(o.notBefore) || !s.wants(now) {
		return
	}
	var wanted []ends
	for client, s := range o.of {
		if s.wants(now) {
			wanted = append(wanted, client)
			s.again = now.Add(s.backoff)
			s.backoff = min(2*s.backoff, lastBackoff)
		}
	}
	o.searching = true
	o.searches.Go(func() { o.find(wanted) })
}

func (s *candidate) wants(now time.Time) bool { return s.owner == nil && !now.Before(s.again) }

// find makes one search.
func (o *owners) find(wanted []ends) {
	began := time.Now()
	found := o.search(wanted, o.sessions())
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.searching, o.notBefore = false, now.Add((searchShare-1)*now.Sub(began))
	for client, owner := range found {
		if s := o.of[client]; s != nil && s.owner == nil {
			s.owner = owner
		} else { // the session has ended
			owner.close()
		}
	}
}

// lose is for an owner that has turned out to be of no use. It may be looked for again later.
func (o *owners) lose(client ends) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loseLocked(client)
}

func (o *owners) loseLocked(client ends) {
	if s := o.of[client]; s != nil && s.owner != nil {
		s.owner.close()
		s.owner = nil
	}
}

// forget ends what is kept for a session, all of whose uploads have ended.
func (o *owners) forget(client ends) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.loseLocked(client)
	delete(o.of, client)
}

// close waits for a search that is under way, and no other begins. What is kept for a session still goes with it.
func (o *owners) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.searches.Wait()
}
