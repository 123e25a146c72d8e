package etcd

import (
	"encoding/json"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// beatEvery is the interval at which the active server writes its beat.
	beatEvery = time.Second
	// beatsKept is the number of latest beats that a standby compares with its own clock.
	beatsKept = 20
)

// beat is the value of the beat's key: the clocks of the active server.
type beat struct {
	Term   uint32        `json:"term"`
	Time   time.Duration `json:"time"`    // on the timeline
	Boot   time.Duration `json:"boot"`    // since the server's boot
	BootID string        `json:"boot_id"` // of that boot
	Wall   time.Time     `json:"wall"`

	// Server is the election key of the active server, and TakingOver the time since when it takes over; zero: it serves. Earlier
	// versions write neither.
	Server     string    `json:"server,omitempty"`
	TakingOver time.Time `json:"taking_over,omitzero"`
}

// decodeBeat returns the beat in a key; false: there is none.
func decodeBeat(kv *mvccpb.KeyValue) (b beat, ok bool) {
	return b, kv != nil && json.Unmarshal(kv.Value, &b) == nil
}

// beat returns the beat of now.
func (l *Log) beat() string {
	now := l.c.o.Clock.Exact()
	b := beat{Term: l.epoch, Time: now.Boot + l.shift, Boot: now.Boot, BootID: l.c.o.BootID, Wall: now.Wall.UTC(), Server: l.key}
	if !l.serving.Load() {
		b.TakingOver = l.began
	}
	return encode(b)
}

// timeline is the time of the cluster, in which etcd keeps the times of holds. It is the active server's time since boot plus a shift that
// is constant over its term. The next active server continues it.
//
// A standby reads a beat some time after it was written, so each beat gives a shift that is too small by that delay. The largest one
// counts, so a lock is never counted as older than it is. Only the latest beats count, because clocks run at different rates, and the
// clock of a virtual machine stops while its host pauses it.
type timeline struct {
	bootID string          // of this server
	seen   int64           // ModRevision of the last beat
	term   uint32          // of the last beat
	shifts []time.Duration // from the latest beats of that term
}

// addBeat adds the shift of a beat that was read now. The first beat may be old, so it gives no shift.
func (l *timeline) addBeat(kv *mvccpb.KeyValue, now lock.Instant) {
	b, ok := decodeBeat(kv)
	if !ok || kv.ModRevision == l.seen {
		return
	}
	if b.Term != l.term {
		l.shifts = nil
	}
	if l.seen != 0 {
		l.shifts = append(l.shifts, b.Time-now.Boot)
		l.shifts = l.shifts[max(0, len(l.shifts)-beatsKept):]
	}
	l.seen, l.term = kv.ModRevision, b.Term
}

// sameClock is the largest difference between a shift by the boot id and one by beats of the same clock: a standby reads a beat late.
const sameClock = 5 * time.Second

// shift returns the shift of a term that begins now, after the last beat. An equal boot id gives the exact shift, unless the time since boot
// went backwards, or other servers' beats contradict it: a restored snapshot of a virtual machine has the id of the old boot, and a copy of a
// running one has it, too. Without an equal boot id the beats count. If this server has seen fewer than two, the wall clock gives the time
// since the last one, or zero if it went backwards.
//
// If a machine continues from a snapshot, and its server starts only when the time since boot has reached the last beat again, no other clock
// contradicts it. Locks then count as younger than they are, and never as older.
func (l *timeline) shift(kv *mvccpb.KeyValue, now lock.Instant) time.Duration {
	last, ok := decodeBeat(kv)
	if !ok {
		return 0
	}
	exact := last.Time - last.Boot
	sameBoot := last.BootID == l.bootID && l.bootID != "" && now.Boot >= last.Boot
	switch {
	case len(l.shifts) > 0:
		seen := slices.Max(l.shifts)
		if sameBoot && (exact-seen).Abs() <= sameClock {
			return exact
		}
		return seen
	case sameBoot:
		return exact
	}
	return last.Time + max(0, now.Wall.Sub(last.Wall)) - now.Boot
}
