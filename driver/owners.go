package driver

import (
	"sync"
	"time"
)

// owners knows the owner of each control connection of this machine that was worth the search. A search looks at all processes of the machine, so
// it is made for sessions that have waited, for all of them at once, beside the uploads that wait; never are there two, and all
// together have a small part of one processor. The zero value looks for nobody.
type owners struct {
	search   func(wanted, all []ends, found func(map[ends]*owner)) (cost time.Duration) // as searchOwners
	sessions func() []ends                                                              // all of this machine's
	stop     chan struct{}                                                              // close closes it

	searches sync.WaitGroup
	many     turnstile // of processes with many threads, see owner.watch

	mu        sync.Mutex
	of        map[ends]*candidate // sessions that have waited, by their clients' ends, until they end
	searching bool                // somebody does, or will when it is time
	next      chan struct{}       // closed when the search is over that has not begun; nil: nobody wants one
	notBefore time.Time           // when that may begin; while one is under way, if it takes as long as the last
	took      time.Duration       // the last one
	closed    bool
}

// candidate is a session whose owner is worth knowing, or will be.
type candidate struct {
	owner   *owner // nil: not found
	looks   int    // at the machine, until they are enough
	again   time.Time
	backoff time.Duration // before the next search but one
}

const (
	searchShare  = 4                      // searches take one of so many parts of a processor's time
	firstBackoff = 100 * time.Millisecond // after a search in vain, and twice that after the next
	lastBackoff  = time.Minute
	enoughLooks  = 2
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

// waited says that an upload has to wait, and has its owner looked for if it is time. If that is over soon, what it returns is closed
// then; otherwise it is nil.
func (o *owners) waited(client ends) (searched <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waitedLocked(client)
}

// looked says that an upload was spared the wait by a look at the machine, which takes longer than one at its client's process: that is looked
// for when it has happened often enough.
func (o *owners) looked(client ends) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.search == nil {
		return
	}
	if s := o.candidateLocked(client); s.looks < enoughLooks {
		s.looks++
		return
	}
	o.waitedLocked(client)
}

func (o *owners) candidateLocked(client ends) *candidate {
	if o.of == nil {
		o.of = make(map[ends]*candidate)
	}
	s := o.of[client]
	if s == nil {
		s = &candidate{backoff: firstBackoff}
		o.of[client] = s
	}
	return s
}

func (o *owners) waitedLocked(client ends) (searched <-chan struct{}) {
	if o.search == nil || o.closed || !o.candidateLocked(client).wants(time.Now()) {
		return nil
	}
	if o.next == nil {
		o.next = make(chan struct{})
		if !o.searching {
			o.searching = true
			o.searches.Go(o.searchOn)
		}
	}
	if max(time.Until(o.notBefore), 0)+o.took > searchWithin {
		return nil
	}
	return o.next
}

func (s *candidate) wants(now time.Time) bool { return s.owner == nil && !now.Before(s.again) }

// searchOn makes searches, each when it is time, until nobody wants one.
func (o *owners) searchOn() {
	for {
		notBefore, wanted := o.due()
		if !wanted {
			return
		}
		pause := time.NewTimer(time.Until(notBefore))
		select {
		case <-pause.C:
		case <-o.stop:
			pause.Stop()
		}
		o.find(o.begin())
	}
}

// due is when the next search may begin, if anybody wants one. If not, searching has ended.
func (o *owners) due() (time.Time, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.searching = o.next != nil
	return o.notBefore, o.searching
}

// begin takes down whose owners are wanted now, and who is to be told when they have been looked for. After close nobody's are.
func (o *owners) begin() (wanted []ends, over chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for client, s := range o.of {
		if !o.closed && s.wants(now) {
			wanted = append(wanted, client)
			s.again = now.Add(s.backoff)
			s.backoff = min(2*s.backoff, lastBackoff)
		}
	}
	o.notBefore = now.Add(searchShare * o.took)
	over, o.next = o.next, nil
	return wanted, over
}

// find makes one search. It is over for those who wait when it finds the first owners, or says that it finds none yet.
func (o *owners) find(wanted []ends, over chan struct{}) {
	tell := sync.OnceFunc(func() { close(over) })
	defer tell()
	if len(wanted) == 0 { // they have ended
		return
	}
	began := time.Now()
	cost := o.search(wanted, o.sessions(), func(found map[ends]*owner) {
		o.take(found)
		tell()
	})
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.took, o.notBefore = now.Sub(began), now.Add((searchShare-1)*cost)
}

func (o *owners) take(found map[ends]*owner) {
	o.mu.Lock()
	defer o.mu.Unlock()
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
	if !o.closed && o.stop != nil {
		close(o.stop)
	}
	o.closed = true
	o.mu.Unlock()
	o.searches.Wait()
}
