package etcd

import (
	"context"
	"encoding/json"
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
}

// decodeBeat reads the key; nil: there is none.
func decodeBeat(kv *mvccpb.KeyValue) (b beat, ok bool) {
	return b, kv != nil && json.Unmarshal(kv.Value, &b) == nil
}

// boots maps moments of other boots, which are those of other servers, to this server's own time since boot. A beat is
// read after it was written, so each gives an offset that is too large by the delay, and the smallest one counts: with
// it a lock is never older than it is.
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
	var add time.Duration
	if string(read.BootID) != b.own {
		if !fresh {
			return
		}
		add = now.Boot - read.Boot
		if b.learn(read.BootID, add) {
			b.skew = now.Wall.Sub(read.Wall)
		}
	}
	for _, o := range slices.Backward(read.Earlier) {
		if string(o.BootID) != b.own {
			b.learn(o.BootID, add+o.Add)
		}
	}
}

// learn reports whether that is the best which is known of the boot.
func (b *boots) learn(id text, add time.Duration) bool {
	i := slices.IndexFunc(b.offsets, func(o offset) bool { return o.BootID == id })
	if i < 0 {
		b.offsets = slices.Insert(b.offsets, 0, offset{id, add})
		b.offsets = b.offsets[:min(len(b.offsets), maxBoots)]
		return true
	}
	if add >= b.offsets[i].Add {
		return false
	}
	b.offsets[i].Add = add
	return true
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
