package etcd

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// beatEvery is how often the active server writes its beat.
	beatEvery = time.Second
	// beatsKept is how many of the latest beats a standby compares with its own clock.
	beatsKept = 20
	// maxSkew is the difference of wall clocks above which a standby warns.
	maxSkew = time.Second
)

// beat is the value of the beat's key: the clocks and the state of the active server.
type beat struct {
	Term   uint32        `json:"term"`
	Time   time.Duration `json:"time"`    // of the cluster
	Boot   time.Duration `json:"boot"`    // of the server
	BootID string        `json:"boot_id"` // of its boot
	Wall   time.Time     `json:"wall"`

	Suspended time.Time `json:"suspended,omitzero"` // since when the server is suspended; zero: it serves
	Why       string    `json:"why,omitempty"`      // it is suspended
}

// decodeBeat reads the key; nil: there is none.
func decodeBeat(kv *mvccpb.KeyValue) (b beat, ok bool) {
	return b, kv != nil && json.Unmarshal(kv.Value, &b) == nil
}

// timeline is the time of the cluster, in which etcd keeps the times of holds. It is the active server's time since boot plus a shift
// that is fixed for its term; the next active server continues it.
//
// A beat is read after it was written, so each one gives a shift that is too small by the delay, and the largest counts: with it
// a lock is never older than it is. Only the last beats count: the active server's clock may be slower than this one's, and the clock of a
// virtual machine stands still while its host pauses it, so earlier beats would make later grants too old.
type timeline struct {
	bootID string          // of this server
	seen   int64           // ModRevision of the last beat
	term   uint32          // of it
	shifts []time.Duration // that the last beats of the term gave
	skew   time.Duration   // how far this server's wall clock is ahead of the active one's
}

// see takes a beat into account that was read by now; nil: there is none. The first one may be of any age, so it gives no shift.
func (l *timeline) see(kv *mvccpb.KeyValue, now lock.Instant) {
	b, ok := decodeBeat(kv)
	if !ok || kv.ModRevision == l.seen {
		return
	}
	if b.Term != l.term {
		l.shifts = nil
	}
	if shift := b.Time - now.Boot; l.seen != 0 {
		if len(l.shifts) == 0 || shift >= slices.Max(l.shifts) {
			l.skew = now.Wall.Sub(b.Wall)
		}
		l.shifts = append(l.shifts, shift)
		l.shifts = l.shifts[max(0, len(l.shifts)-beatsKept):]
	}
	l.seen, l.term = kv.ModRevision, b.Term
}

// shift returns what a term that begins now, after the last beat of all, adds to this server's time since boot. If the server has never
// seen two beats, the wall clock gives the time since the last one; one that went backwards gives none.
func (l *timeline) shift(kv *mvccpb.KeyValue, now lock.Instant) time.Duration {
	last, ok := decodeBeat(kv)
	switch {
	case !ok:
		return 0
	case last.BootID == l.bootID && l.bootID != "":
		return last.Time - last.Boot
	case len(l.shifts) > 0:
		return slices.Max(l.shifts)
	}
	return last.Time + max(0, now.Wall.Sub(last.Wall)) - now.Boot
}

// beatOf returns the beat of now, of a server that has been suspended since then for that reason, or serves.
func (l *Log) beatOf(suspended time.Time, why error) string {
	now := l.c.o.Clock.Exact()
	b := beat{Term: l.epoch, Time: now.Boot + l.shift, Boot: now.Boot, BootID: l.c.o.BootID, Wall: now.Wall.UTC(), Suspended: suspended}
	var reason *lock.SuspendedError
	if errors.As(why, &reason) {
		b.Why = reason.Reason
	}
	return encode(b)
}
