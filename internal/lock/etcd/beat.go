package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

const (
	// beatEvery is how often the active server writes its beat.
	beatEvery = time.Second
	// lookEvery is how often a standby reads it. It differs, so that some look soon comes right after a beat.
	lookEvery = 900 * time.Millisecond
	// maxBoots is the number of boots whose clocks are mapped. Times of others are mapped by the wall clock.
	maxBoots = 16
	// window is the least number of the latest beats of the active server that give its offset; at most twice as many do.
	window = 20
	// maxSkew is the difference of wall clocks above which a standby warns.
	maxSkew = time.Second
)

// beat is the value of the beat's key: the clocks of the active server, and the offsets of earlier ones.
type beat struct {
	Boot    time.Duration `json:"boot"`
	BootID  string        `json:"boot_id"` // a bootKey
	Wall    time.Time     `json:"wall"`
	Earlier []offset      `json:"earlier,omitempty"` // the newest first

	Suspended time.Time `json:"suspended,omitzero"` // since when the server is suspended; zero: it serves
	Why       string    `json:"why,omitempty"`      // it is suspended
}

// offset is added to a time of another boot to get the time of this one.
type offset struct {
	BootID string        `json:"boot_id"`
	Add    time.Duration `json:"add"`

	beats  int           // that came since Add was last allowed to grow
	lately time.Duration // the smallest offset that they gave
}

// decodeBeat reads the key; nil: there is none.
func decodeBeat(kv *mvccpb.KeyValue) (b beat, ok bool) {
	return b, kv != nil && json.Unmarshal(kv.Value, &b) == nil
}

// boots maps times of other boots, which are those of other servers, to this server's own time since boot. A beat is
// read after it was written, so each gives an offset that is too large by the delay, and the smallest one counts: with
// it a lock is never older than it is. For the active server only its last beats count: its clock may be slower than this
// one's, and the clock of a virtual machine stands still while its host pauses it, so earlier beats would make later grants too old.
type boots struct {
	own     string
	last    int64    // ModRevision of the last beat that was seen
	offsets []offset // the newest first
	skew    time.Duration
}

// see takes a beat into account that was read by now. The first one may be of any age, so it is not used, except one of the
// same boot, whose clock is this server's own.
func (b *boots) see(kv *mvccpb.KeyValue, now lock.Instant) {
	read, ok := decodeBeat(kv)
	if !ok || read.BootID == "" || b.own == "" || kv.ModRevision == b.last {
		return
	}
	fresh := b.last != 0
	b.last = kv.ModRevision
	var told []offset // the newest first
	var add time.Duration
	if read.BootID != b.own {
		if !fresh {
			return
		}
		add = now.Boot - read.Boot
		active := b.known(read.BootID).heard(add)
		if active.Add == add {
			b.skew = now.Wall.Sub(read.Wall)
		}
		told = append(told, active)
	}
	for _, o := range read.Earlier {
		if o.BootID != b.own {
			earlier := b.known(o.BootID)
			earlier.Add = min(earlier.Add, add+o.Add)
			told = append(told, earlier)
		}
	}
	for _, o := range b.offsets { // those that the active server does not have, or not any more
		if !slices.ContainsFunc(told, func(t offset) bool { return t.BootID == o.BootID }) {
			told = append(told, o)
		}
	}
	b.offsets = told[:min(len(told), maxBoots)]
}

// known returns the offset of a boot; of an unknown one a bound that is too large.
func (b *boots) known(id string) offset {
	for _, o := range b.offsets {
		if o.BootID == id {
			return o
		}
	}
	return offset{BootID: id, Add: math.MaxInt64}
}

// heard takes the offset into account that a beat of the boot itself gave, and forgets, now and then, all but those of the last beats.
func (o offset) heard(add time.Duration) offset {
	if o.beats == 0 {
		o.lately = add
	}
	o.Add, o.lately = min(o.Add, add), min(o.lately, add)
	if o.beats++; o.beats == window {
		o.Add, o.beats = o.lately, 0
	}
	return o
}

// local maps a time of a boot to this server's. If the boot is unknown, the wall clock gives its age; one that went backwards gives the age 0.
func (b *boots) local(i lock.Instant, id string, now lock.Instant) lock.Instant {
	if id == b.own && id != "" {
		return i
	}
	for _, o := range b.offsets {
		if id == o.BootID {
			i.Boot += o.Add
			return i
		}
	}
	i.Boot = now.Boot - max(0, now.Wall.Sub(i.Wall))
	return i
}

// beat returns the beat of now, of a server that has been suspended since then for that reason, or serves.
func (c *Cluster) beat(suspended time.Time, why error) string {
	now := c.o.Clock.Exact()
	b := beat{Boot: now.Boot, BootID: c.boots.own, Wall: now.Wall.UTC(), Suspended: suspended}
	var reason *lock.SuspendedError
	if errors.As(why, &reason) {
		b.Why = reason.Reason
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b.Earlier = c.boots.offsets
	return encode(b)
}

// sawBeat takes a beat into account; nil: there is none.
func (c *Cluster) sawBeat(kv *mvccpb.KeyValue) {
	now := c.o.Clock.Exact()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boots.see(kv, now)
}

// observe reads the beat and the election keys until ctx ends, and publishes how long that takes.
func (c *Cluster) observe(ctx context.Context) {
	warned := make(map[string]bool)
	for looks := 0; ; looks++ {
		began := time.Now()
		resp, err := c.members.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(c.keys.beat()), c.getServers()}, nil)
		c.note(time.Since(began), err)
		if err == nil {
			c.sawBeat(one(resp, 0))
			c.observed(kvs(resp, 1), looks, warned)
		}
		c.publish(ctx)
		if !pause(ctx, lookEvery) {
			return
		}
	}
}

// observed takes over what a look has found, and warns once of each mistake.
func (c *Cluster) observed(servers []*mvccpb.KeyValue, looks int, warned map[string]bool) {
	now := c.o.Clock.Exact()
	c.mu.Lock()
	c.looked = now.Boot
	skew := c.boots.skew
	if c.known = len(servers) > 0; c.known {
		c.leader = decodeServer(servers[0])
	}
	leader := c.leader
	c.mu.Unlock()
	if looks > 5 && skew.Abs() > maxSkew && !warned["skew"] {
		warned["skew"] = true
		c.o.Log.Warn("the wall clocks of two servers differ: ages go by them after a cold start", "server", leader.String(), "by", skew)
	}
	for _, kv := range servers {
		if s := decodeServer(kv); s.Rules != c.o.Self.Rules && !warned[s.Name+s.Rules] {
			warned[s.Name+s.Rules] = true
			c.o.Log.Warn("another server has other rules: locks change with who is active", "server", s.String())
		}
	}
}
