package etcd

import (
	"context"
	"encoding/json"
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
	// maxBoots is of how many boots the clocks are mapped. Moments of others go by the wall clock.
	maxBoots = 16
	// window is how many beats of the active server tell its offset, at least; at most twice as many.
	window = 20
	// maxSkew is how far apart wall clocks may be before it is told.
	maxSkew = time.Second
)

// beat is the value of the beat's key: the clocks of the active server, and what it knows of those of earlier ones.
type beat struct {
	Boot    time.Duration `json:"boot"`
	BootID  text          `json:"boot_id"`
	Wall    time.Time     `json:"wall"`
	Earlier []offset      `json:"earlier,omitempty"` // the newest first
}

// offset is what is added to the time of a boot to have that of one's own.
type offset struct {
	BootID text          `json:"boot_id"`
	Add    time.Duration `json:"add"`

	beats  int           // that came since Add was last let grow
	lately time.Duration // the smallest offset that they gave
}

// decodeBeat reads the key; nil: there is none.
func decodeBeat(kv *mvccpb.KeyValue) (b beat, ok bool) {
	return b, kv != nil && json.Unmarshal(kv.Value, &b) == nil
}

// boots maps moments of other boots, which are those of other servers, to this server's own time since boot. A beat is
// read after it was written, so each gives an offset that is too large by the delay, and the smallest one counts: with
// it a lock is never older than it is. That of the active server is the smallest of its last beats only: its clock may be slower than this
// one's, and that of a virtual machine stands still while its host pauses it, so that earlier beats make what is acquired later too old.
type boots struct {
	own     string
	last    int64    // ModRevision of the last beat that was seen
	offsets []offset // the newest first
	skew    time.Duration
}

// see takes a beat into account that was read by now. The first one that is seen may be of any age, and so is of no use, but for one of the
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
	if string(read.BootID) != b.own {
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
		if string(o.BootID) != b.own {
			earlier := b.known(o.BootID)
			earlier.Add = min(earlier.Add, add+o.Add)
			told = append(told, earlier)
		}
	}
	for _, o := range b.offsets { // of which the active server knows nothing, or no more
		if !slices.ContainsFunc(told, func(t offset) bool { return t.BootID == o.BootID }) {
			told = append(told, o)
		}
	}
	b.offsets = told[:min(len(told), maxBoots)]
}

// known is what is known of a boot: no more than a bound that is too large, if nothing is.
func (b *boots) known(id text) offset {
	for _, o := range b.offsets {
		if o.BootID == id {
			return o
		}
	}
	return offset{BootID: id, Add: math.MaxInt64}
}

// heard takes the offset into account that a beat of the boot itself has given, and forgets, now and then, all but those of the last beats.
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

// local maps a moment to this server's time. That of an unknown boot stays as it is.
func (b *boots) local(i lock.Instant) lock.Instant {
	for _, o := range b.offsets {
		if i.BootID != "" && string(o.BootID) == i.BootID {
			i.Boot, i.BootID = i.Boot+o.Add, b.own
			break
		}
	}
	return i
}

// localize maps the moments of a record.
func (c *Cluster) localize(r lock.Record) lock.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range r.Holds {
		h := &r.Holds[i]
		h.Acquired, h.Renewed, h.Ended = c.boots.local(h.Acquired), c.boots.local(h.Renewed), c.boots.local(h.Ended)
	}
	return r
}

// beat is what this server writes now.
func (c *Cluster) beat() string {
	now := c.o.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return encode(beat{Boot: now.Boot, BootID: text(now.BootID), Wall: now.Wall.UTC(), Earlier: c.boots.offsets})
}

// observe looks at the active server until ctx ends.
func (c *Cluster) observe(ctx context.Context) {
	warned := make(map[string]bool)
	for looks := 0; ; looks++ {
		resp, err := c.members.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(c.keys.beat()), c.getServers()}, nil)
		if err == nil {
			c.observed(one(resp, 0), kvs(resp, 1), looks, warned)
		}
		if !pause(ctx, lookEvery) {
			return
		}
	}
}

// observed takes over what a look has found, and warns once of each thing that is wrong.
func (c *Cluster) observed(beat *mvccpb.KeyValue, servers []*mvccpb.KeyValue, looks int, warned map[string]bool) {
	now := c.o.Clock.Now()
	c.mu.Lock()
	c.boots.see(beat, now)
	c.looked = now.Boot
	skew := c.boots.skew
	if c.known = len(servers) > 0; c.known {
		c.leader = decodeServer(servers[0])
	}
	leader := c.leader
	c.mu.Unlock()
	if looks > 5 && skew.Abs() > maxSkew && !warned["skew"] {
		warned["skew"] = true
		c.o.Log.Warn("the wall clocks of two servers differ: ages go by them after a cold start", "server", leader.Name, "by", skew)
	}
	for _, kv := range servers {
		if s := decodeServer(kv); s.Rules != c.o.Self.Rules && !warned[s.Name+s.Rules] {
			warned[s.Name+s.Rules] = true
			c.o.Log.Warn("another server has other rules: locks change with who is active", "server", s.Name)
		}
	}
}
