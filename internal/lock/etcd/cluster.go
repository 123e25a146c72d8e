package etcd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Cluster is one server's connection to etcd. Use Open. It is for use by several goroutines, except that only one may call Campaign.
type Cluster struct {
	o       Options
	keys    keys
	members *members

	mu           sync.Mutex
	standbyState string // see StandbyState
	timeline     timeline
	self         Server
	differing    []string // see Differing
}

// Open returns a Cluster. It connects when it is used. Call Close.
func Open(o Options) *Cluster {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Cluster{o: o, keys: keys(o.Prefix), members: newMembers(&o), timeline: timeline{bootID: o.BootID}, self: o.Self}
}

// Check returns an error if no member of etcd answers within two request timeouts, or if the members belong to several clusters. After it
// has returned nil, the Cluster ignores members of another cluster. It logs members that do not answer.
func (c *Cluster) Check(ctx context.Context) error {
	var errs []error
	var first Member
	for _, m := range c.memberStates(ctx) {
		switch {
		case m.Err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", m.Endpoint, m.Err))
			continue
		case first.Endpoint == "":
			first = m
		case m.cluster != first.cluster:
			return fmt.Errorf("etcd: the endpoints are not of one cluster: %s is a member of another one than %s", m.Endpoint, first.Endpoint)
		}
	}
	if first.Endpoint == "" {
		return fmt.Errorf("etcd: no member answers: %w", errors.Join(errs...))
	}
	for _, err := range errs {
		c.o.Log.Warn("a member of etcd does not answer", "err", err)
	}
	c.members.cluster.Store(first.cluster)
	return nil
}

// Close closes all connections. Close a Log of the cluster first.
func (c *Cluster) Close() error {
	c.members.close()
	return nil
}

// StandbyState returns the result of the last poll of [Cluster.Campaign]: which server is active, or why this one cannot take over; "": there
// was no poll yet.
func (c *Cluster) StandbyState() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.standbyState
}

// SetSettings replaces the settings of this server, after a reload. The other servers read them within two seconds.
func (c *Cluster) SetSettings(settings map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.self.Settings = settings
}

// Differing returns the settings of this standby that differ from those of the active server, as [Server.Differs] does.
func (c *Cluster) Differing() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.differing
}

// value returns the value of this server's election key.
func (c *Cluster) value() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return encode(c.self)
}

// compareLocked compares the settings of this standby with those of the active server, and logs a change.
func (c *Cluster) compareLocked(active Server) {
	before := c.differing
	switch c.differing = c.self.Differs(active); {
	case slices.Equal(before, c.differing):
	case len(c.differing) > 0:
		c.o.Log.Warn("this server has other settings than the active one, and uses them after a takeover", "keys", strings.Join(c.differing, ", "), "active", active.String())
	default:
		c.o.Log.Info("this server has the settings of the active one")
	}
}

// StepDown makes the active server hand over, and returns the next server when that serves. Without a standby it returns an error, and
// if the same server serves again because the next one could not.
func (c *Cluster) StepDown(ctx context.Context) (Server, error) {
	servers, before, _, err := c.servers(ctx)
	if err != nil {
		return Server{}, fmt.Errorf("etcd: %w", withoutGRPC(err))
	}
	if len(servers) < 2 {
		return Server{}, errors.New("no server stands by to take over")
	}
	active, first := string(servers[0].Key), decodeServer(servers[0]).String()
	err = c.members.put(ctx, c.keys.stepDown(), active)
	state := first + " is still active"
	for err == nil && pause(ctx, 20*time.Millisecond) {
		var epoch uint64
		var last *mvccpb.KeyValue
		if servers, epoch, last, err = c.servers(ctx); err != nil || len(servers) > 0 && string(servers[0].Key) == active {
			continue
		}
		if state = "no server stands by"; len(servers) == 0 {
			continue
		}
		next := decodeServer(servers[0])
		b, ok := decodeBeat(last)
		switch {
		case epoch == before || !ok || b.Term != uint32(epoch) || !b.takingOver(servers, time.Now()).IsZero():
			state = next.String() + " is taking over"
		case next.String() == first:
			return Server{}, fmt.Errorf("%s serves again: the next server could not", first)
		default:
			return next, nil
		}
	}
	return Server{}, fmt.Errorf("no other server serves yet: %s: %w", state, cmp.Or(err, ctx.Err()))
}

// restoredTerms is the number that RaiseBase adds to the epoch: more terms than a cluster has between two backups. An epoch has 24 bits in
// a [lock.SessionID].
const restoredTerms = 100_000

// RaiseBase makes all further tokens larger by a number, after etcd was restored from a backup that has an old end of the tokens. The epoch
// becomes larger than those of the terms since the backup, so the next active server removes their unfinished uploads. RaiseBase returns a
// token that is smaller than all further ones. It returns ErrActive unless all servers are stopped.
func (c *Cluster) RaiseBase(ctx context.Context, by uint64) (lock.Token, error) {
	read, err := c.members.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(c.keys.tokens()), clientv3.OpGet(c.keys.epoch()), clientv3.OpGet(c.keys.format())}, nil)
	if err == nil {
		err = c.keys.checkFormat(firstKeyRead(read, 2))
	}
	if err != nil {
		return 0, fmt.Errorf("etcd: %w", withoutGRPC(err))
	}
	before := firstKeyRead(read, 0)
	raised := parseDecimal(before) + by
	if raised < by {
		return 0, errors.New("the tokens would be too large")
	}
	noServer := clientv3.Compare(clientv3.CreateRevision(c.keys.servers()), "=", 0).WithPrefix()
	unchanged := clientv3.Compare(clientv3.ModRevision(c.keys.tokens()), "=", before.GetModRevision())
	resp, err := c.members.txn(ctx, []clientv3.Cmp{noServer, unchanged},
		[]clientv3.Op{
			clientv3.OpPut(c.keys.tokens(), decimal(raised)),
			clientv3.OpPut(c.keys.epoch(), decimal(parseDecimal(firstKeyRead(read, 1))+restoredTerms)),
		}, []clientv3.Op{c.getServers()})
	switch {
	case err != nil:
		return 0, fmt.Errorf("etcd: %w", withoutGRPC(err))
	case resp.Succeeded:
		return lock.Token(raised), nil
	case len(keysRead(resp, 0)) == 0: // or the reply was lost, and the request was sent twice
		return 0, errors.New("the tokens have changed at the same time: try again")
	}
	return 0, ErrActive
}

// getServers reads the election keys, the oldest first.
func (c *Cluster) getServers() clientv3.Op {
	return clientv3.OpGet(c.keys.servers(), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
}

// keysRead returns the keys that the i-th operation of a transaction has read.
func keysRead(resp *clientv3.TxnResponse, i int) []*mvccpb.KeyValue {
	if resp == nil || i >= len(resp.Responses) {
		return nil
	}
	return resp.Responses[i].GetResponseRange().GetKvs()
}

// firstKeyRead returns the key that the i-th operation of a transaction has read; nil: there was none.
func firstKeyRead(resp *clientv3.TxnResponse, i int) *mvccpb.KeyValue {
	if found := keysRead(resp, i); len(found) > 0 {
		return found[0]
	}
	return nil
}

// decimal is the value of a key that is a number.
func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

// parseDecimal reads such a value; 0 for nil.
func parseDecimal(kv *mvccpb.KeyValue) uint64 {
	n, _ := strconv.ParseUint(string(kv.GetValue()), 10, 64)
	return n
}

func decodeServer(kv *mvccpb.KeyValue) (s Server) {
	if err := json.Unmarshal(kv.Value, &s); err != nil {
		s.Name = string(kv.Key) // another version wrote it
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
