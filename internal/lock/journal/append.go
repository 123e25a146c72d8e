package journal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/record"
)

const (
	// tokenBlock is the number of tokens that the header of a segment reserves. After a crash a start skips at most as many.
	tokenBlock = 100_000
	// grantRoom is the space that the longest grant and its end need: names are at most 4 KiB, and a byte may take three.
	grantRoom = 32 << 10
	// usualGrant is the expected length of a record before the first one.
	usualGrant = 512
	// endRoom is the number of bytes by which the line of an end may exceed the line of the grant.
	endRoom = 128
)

// records is the part of a Log that Append and Room use. The table calls them with its mutex held, so no I/O happens with mu held.
type records struct {
	mu             sync.Mutex
	pending        []byte // the lines that are not written yet
	tail           *segment
	nextSize       int64         // the size of the next segment, without the space for standing holds
	endAt          lock.Position // the end of the last line
	last           lock.Token    // the largest token in a record
	reserved       lock.Token    // the largest token that may be given; a synced header has it
	requestedToken lock.Token    // the largest argument of Room within half a block of last
	standing       map[lock.Token]standingHold
	holdSpace      int64  // the space for the records of all standing holds in a new segment, which is also the space for their ends
	longest        int64  // the length of the longest record that needs room so far
	rewriteSpace   int64  // the space for the current rewrite
	firstNeeded    uint64 // the first segment that a start must read to find all holds
	events         bool   // the tail contains entries of the history
}

// standingHold is a hold that stands, and its part of holdSpace.
type standingHold struct {
	hold lock.Hold
	size int64
}

// Append implements [lock.Log].
func (l *Log) Append(all []lock.Record) lock.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range all {
		l.add(&all[i])
	}
	return l.endAt
}

// appendCopy appends a copy of a hold from an earlier segment.
func (r *records) appendCopy(h *lock.Hold) int64 {
	return r.appendLine(record.AppendHold(r.pending, h))
}

// appendMark appends a line that is no record.
func (r *records) appendMark(m mark) { r.appendLine(m.appendTo(r.pending)) }

// appendLine ends the last line of b, which are the pending lines and this one, and returns its length.
func (r *records) appendLine(b []byte) int64 {
	size := len(b) + 1 - len(r.pending)
	r.pending = append(b, '\n')
	r.endAt += lock.Position(size)
	return int64(size)
}

// add appends the line of a record, and counts the space for its end.
func (r *records) add(one *lock.Record) {
	h := &one.Hold
	r.events = r.events || record.IsEntry(one)
	size := r.appendLine(record.Append(r.pending, one))
	switch one.Kind {
	case lock.Granted, lock.Changed:
		r.last = max(r.last, h.Token)
		r.longest = max(r.longest, size)
		r.dropHold(one.Replaces)
		r.dropHold(h.Token)
		end := size + endRoom
		if one.Cause == lock.CauseAdopt { // a grant of the earlier session may follow, which has an end, too
			end *= 2
		}
		r.standing[h.Token] = standingHold{*h, end}
		r.holdSpace += end
	case lock.Ended:
		r.dropHold(h.Token)
	case lock.Published:
		r.longest = max(r.longest, size)
	}
}

// dropHold frees the space for the end of a hold.
func (r *records) dropHold(token lock.Token) {
	r.holdSpace -= r.standing[token].size
	delete(r.standing, token)
}

// needed returns how much space the grants up to a token, or as many other records, their ends, the ends of all holds and a rewrite need.
func (r *records) needed(token lock.Token) int64 {
	grants := int64(max(token, r.last) - r.last)
	return grantRoom + 2*grants*max(r.longest, usualGrant) + r.holdSpace + r.rewriteSpace
}

// free returns how much synced space is left in the tail.
func (r *records) free() int64 { return r.tail.size - int64(r.endAt-r.tail.base) }

// Room implements [lock.Log].
func (l *Log) Room(token lock.Token) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token > l.last+tokenBlock/2 {
		return false
	}
	l.requestedToken = max(l.requestedToken, token)
	return token <= l.reserved && l.free() >= l.needed(token) && !l.stuck.Load()
}

// MakeRoom implements [lock.Log]. It returns when the disk answers, even if ctx has ended.
func (l *Log) MakeRoom(ctx context.Context, token lock.Token) error {
	if l.Room(token) {
		return nil
	}
	err := l.keep(false)
	if isFull(err) {
		return fmt.Errorf("%w: %w", lock.ErrFull, withoutPath(err))
	}
	if err != nil || l.Room(token) {
		return err
	}
	select { // too many grants are waiting for their directories
	case <-ctx.Done():
		return ctx.Err()
	case <-l.stop:
		return lock.ErrClosed
	case <-time.After(retryAfter):
		return nil
	}
}
