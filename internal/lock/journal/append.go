package journal

import (
	"math"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// tokenBlock is how many tokens one synced line reserves. After a loss of power a start skips so many at most.
	tokenBlock = 100_000
	// grantRoom is the space that the longest grant and its end need: names are at most 4 KiB, and a byte may take three.
	grantRoom = 32 << 10
	// usualGrant is the length of an ordinary grant.
	usualGrant = 512
	// endRoom is by how much the end of a hold may be longer than its grant.
	endRoom = 64
)

// records is the part of a Log that Append and Room use. The table calls them with its mutex held, so no I/O happens with mu held.
type records struct {
	mu       sync.Mutex
	coder    coder // its buffer has the lines that are not written yet
	tail     *segment
	endAt    lock.Position // the end of the last line
	last     lock.Token    // the largest in a record
	reserved lock.Token    // tokens up to this one may be given; that is synced
	awaited  lock.Token    // the largest that Room was called with
	stands   map[lock.Token]int32
	standing int64         // the bytes of the lines of all holds that stand
	longest  int64         // of the lines of grants so far
	keepAt   lock.Position // upkeep is due when endAt is there
	events   bool          // the tail has entries of the history
	flushing bool          // flush was told that there are lines
}

// Append implements [lock.Log].
func (l *Log) Append(all []lock.Record) lock.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.coder.b)
	for i := range all {
		if all[i].Kind <= maxKept {
			l.add(&all[i])
		}
	}
	l.endAt += lock.Position(len(l.coder.b) - before)
	if !l.flushing {
		l.flushing = true
		signal(l.flushes)
	}
	if l.endAt >= l.keepAt {
		l.keepAt = math.MaxInt64
		signal(l.wanted)
	}
	return l.endAt
}

// add appends the line of a record to the buffer, and counts the space for its end.
func (r *records) add(record *lock.Record) {
	before := len(r.coder.b)
	entry := line{kind: record.Kind, record: record}
	h := &record.Hold
	switch record.Kind {
	case lock.Granted, lock.Changed:
		r.last = max(r.last, h.Token)
		r.forget(record.Replaces)
	case lock.Ended:
		r.forget(h.Token)
		if h.Acquired != (lock.Instant{}) {
			entry.held = max(0, record.At.Boot-h.Acquired.Boot)
		}
	}
	r.events = r.events || entry.event()
	r.coder.append(&entry)
	if record.Kind == lock.Granted || record.Kind == lock.Changed {
		size := int32(len(r.coder.b) - before)
		r.longest = max(r.longest, int64(size))
		r.standing += int64(size - r.stands[h.Token])
		r.stands[h.Token] = size
	}
}

// forget gives back the space for the end of a hold.
func (r *records) forget(token lock.Token) {
	if size, ok := r.stands[token]; ok {
		r.standing -= int64(size)
		delete(r.stands, token)
	}
}

// appendOwn appends a line of the log itself. Nothing waits for it, so it is written with the next record.
func (r *records) appendOwn(kind lock.Kind, number uint64) {
	before := len(r.coder.b)
	r.coder.append(&line{kind: kind, number: number})
	r.endAt += lock.Position(len(r.coder.b) - before)
}

// needed returns how much space the grants up to a token, their ends, and the ends of all holds need.
func (r *records) needed(token lock.Token) int64 {
	grants := int64(max(token, r.last) - r.last)
	return grantRoom + 2*grants*max(r.longest, usualGrant) + r.standing + endRoom*int64(len(r.stands))
}

// free returns how much synced space lies ahead of the end.
func (r *records) free() int64 { return r.tail.filled.Load() - int64(r.endAt-r.tail.base) }

// Room implements [lock.Log].
func (l *Log) Room(token lock.Token) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token > l.last+tokenBlock/2 {
		return false
	}
	free, needed := l.free(), l.needed(token)
	l.awaited = max(l.awaited, token)
	if token+tokenBlock/2 > l.reserved || free < needed+l.ahead()/2 {
		signal(l.wanted)
	}
	return token <= l.reserved && free >= needed && !l.stuck.Load()
}

// signal wakes the goroutine that reads the channel, if it is not about to run anyway.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// flushDelay is how long a record may be unwritten that nobody waits for.
const flushDelay = 5 * time.Millisecond

// flush writes records that nobody waits for, and tries again while the disk is full.
func (l *Log) flush() {
	for {
		select {
		case <-l.stop:
			return
		case <-l.flushes:
		}
		select {
		case <-l.stop:
			return
		case <-time.After(flushDelay):
		}
		l.mu.Lock()
		l.flushing = false
		l.mu.Unlock()
		if err := l.write(); full(err) {
			signal(l.flushes)
		}
	}
}
