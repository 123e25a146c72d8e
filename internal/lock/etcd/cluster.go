package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Cluster is one server's connection to etcd. Use Open. It is for use by several goroutines; Campaign by one at a time.
type Cluster struct {
	o       Options
	keys    keys
	members *members

	mu       sync.Mutex
	leader   Server // the active one, by the last look
	known    bool   // there was one
	timeline timeline
	trips    roundTrips // of the requests of a campaign
}

// Open connects to etcd. It returns an error if no member answers within a few request timeouts, or if the members belong to several
// clusters. Later it ignores members of another cluster. It warns of members that are too old, and of a cluster that is out of space.
func Open(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	c := &Cluster{o: o, keys: keys(o.Prefix), members: newMembers(&o), timeline: timeline{bootID: o.BootID}}
	found := c.look(ctx)
	var errs []error
	for _, m := range found {
		if m.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.Endpoint, plain(m.Err)))
			continue
		}
		if !c.members.cluster.CompareAndSwap(0, m.cluster) && c.members.cluster.Load() != m.cluster {
			c.Close()
			return nil, errors.New("etcd: the endpoints are not of one cluster: " + m.Endpoint + " is a member of another one than those before it")
		}
		if older(m.Version, minVersion) {
			o.Log.Warn("a member of etcd is too old: leases may be lost or kept wrongly before "+minVersion, "member", m.Endpoint, "version", m.Version)
		}
		if m.Alarm != "" {
			o.Log.Warn("a member of etcd has raised an alarm: nothing can be locked while it lasts", "member", m.Endpoint, "alarm", m.Alarm)
		}
	}
	if len(errs) == len(found) {
		c.Close()
		return nil, fmt.Errorf("etcd: no member answers: %w", errors.Join(errs...))
	}
	for _, err := range errs {
		o.Log.Warn("a member of etcd does not answer", "err", err)
	}
	return c, nil
}

// minVersion is the first version of etcd without known faults of leases (etcd#15247, #13675, PR #20590).
const minVersion = "3.6.5"

// older compares versions by their numbers.
func older(version, than string) bool {
	a, b := strings.Split(version, "."), strings.Split(than, ".")
	for i := range min(len(a), len(b)) {
		x, err := strconv.Atoi(a[i])
		y, _ := strconv.Atoi(b[i])
		if x != y || err != nil {
			return x < y
		}
	}
	return false
}

// Close ends all connections. A Log of the cluster must be closed before.
func (c *Cluster) Close() error {
	c.members.close()
	return nil
}

// Leader returns which server was active by the last look of a server that campaigns.
func (c *Cluster) Leader() (Server, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader, c.known
}

// Trouble returns why a server that campaigns cannot take over: etcd refuses it, answers it too slowly, or did not answer its last look. "": it can.
func (c *Cluster) Trouble() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch slow := c.trips.slow(c.o.RequestTimeout); {
	case slow == nil || errors.Is(slow, errNotMeasured):
		return ""
	case c.trips.failed == nil:
		return slow.Error()
	default:
		return Reason(slow)
	}
}

// StepDown requests the active server to hand over, and returns the server that has taken over. Without a standby it returns an error.
func (c *Cluster) StepDown(ctx context.Context) (Server, error) {
	resp, err := c.members.txn(ctx, nil, []clientv3.Op{c.getServers(), clientv3.OpGet(c.keys.epoch())}, nil)
	if err != nil {
		return Server{}, fmt.Errorf("etcd: %s%w", Status{Members: c.look(ctx)}.minority(), plain(err))
	}
	servers, epoch := kvs(resp, 0), number64(one(resp, 1))
	if len(servers) < 2 {
		return Server{}, errors.New("no server stands by to take over")
	}
	active := string(servers[0].Key)
	err = c.members.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Put(ctx, c.keys.stepDown(), active)
		return err
	})
	for err == nil && pause(ctx, 20*time.Millisecond) {
		resp, err = c.members.txn(ctx, nil, []clientv3.Op{c.getServers(), clientv3.OpGet(c.keys.epoch())}, nil)
		if servers := kvs(resp, 0); err == nil && number64(one(resp, 1)) > epoch && len(servers) > 0 && string(servers[0].Key) != active {
			return decodeServer(servers[0]), nil
		}
	}
	return Server{}, fmt.Errorf("no server has taken over yet: %w", cmp.Or(err, ctx.Err()))
}

// RaiseBase makes all further tokens larger by so much: after etcd was restored from a backup, which has an old end of the tokens. It
// returns a token that is smaller than all further ones. It returns ErrActive unless all servers are stopped.
func (c *Cluster) RaiseBase(ctx context.Context, by uint64) (lock.Token, error) {
	before, err := c.get(ctx, c.keys.tokens())
	if err != nil {
		return 0, err
	}
	raised := number64(before) + by
	if raised < by {
		return 0, errors.New("the tokens would be too large")
	}
	resp, err := c.members.txn(ctx, []clientv3.Cmp{c.noServer(), clientv3.Compare(clientv3.ModRevision(c.keys.tokens()), "=", before.GetModRevision())},
		[]clientv3.Op{clientv3.OpPut(c.keys.tokens(), decimal(raised))},
		[]clientv3.Op{clientv3.OpGet(c.keys.tokens()), c.getServers()})
	switch {
	case err != nil:
		return 0, fmt.Errorf("etcd: %w", plain(err))
	case resp.Succeeded, number64(one(resp, 0)) == raised: // a lost reply makes the request come twice
		return lock.Token(raised), nil
	case len(kvs(resp, 1)) == 0:
		return 0, errors.New("another program has changed the tokens at the same time")
	}
	return 0, ErrActive
}

// get reads one key; nil: there is none.
func (c *Cluster) get(ctx context.Context, key string) (*mvccpb.KeyValue, error) {
	resp, err := c.members.get(ctx, key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("etcd: %w", plain(err))
	case len(resp.Kvs) == 0:
		return nil, nil
	}
	return resp.Kvs[0], nil
}

// noServer is true while no server is active or stands by.
func (c *Cluster) noServer() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(c.keys.servers()), "=", 0).WithPrefix()
}

func (c *Cluster) getServers() clientv3.Op {
	return clientv3.OpGet(c.keys.servers(), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
}

// kvs returns what the i-th operation of a transaction has read.
func kvs(resp *clientv3.TxnResponse, i int) []*mvccpb.KeyValue {
	if resp == nil || i >= len(resp.Responses) {
		return nil
	}
	return resp.Responses[i].GetResponseRange().GetKvs()
}

// one returns the key that the i-th operation of a transaction has read; nil: there was none.
func one(resp *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	if found := kvs(resp, i); len(found) > 0 {
		return found[0]
	}
	return nil
}

// decimal is the value of a key that is a number.
func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// number64 reads such a value; without the key it is 0.
func number64(kv *mvccpb.KeyValue) uint64 {
	n, _ := strconv.ParseUint(string(kv.GetValue()), 10, 64)
	return n
}

func decodeServer(kv *mvccpb.KeyValue) (s Server) {
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		s.Name = string(kv.Key) // of a version that writes it otherwise
	}
	return s
}

// encode returns the JSON of one of this package's types, each of which has one.
func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
