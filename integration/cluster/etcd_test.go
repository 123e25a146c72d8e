//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// prefix is the first part of all keys.
const prefix = "/ftplockd/"

// changes returns all transactions of etcd, in order. No server may write meanwhile.
func (c *cluster) changes(t testing.TB) (all [][]*clientv3.Event) {
	t.Helper()
	c.etcd.Ready()
	client := c.client(t)
	defer client.Close()
	ctx := client.Ctx()
	now, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for resp := range client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range resp.Events {
			if e.Kv.ModRevision != at {
				at = e.Kv.ModRevision
				all = append(all, nil)
			}
			all[len(all)-1] = append(all[len(all)-1], e)
		}
		if at >= now.Header.Revision {
			return all
		}
	}
	t.Fatalf("etcd's history ends at revision %d of %d: %v", at, now.Header.Revision, ctx.Err())
	return nil
}

// revision returns the revision of etcd.
func (c *cluster) revision(t testing.TB) int64 {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	resp, err := client.Get(client.Ctx(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// line returns the servers that have an election key, the active one first.
func (c *cluster) line(t testing.TB) (all []*server) {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	resp, err := client.Get(client.Ctx(), prefix+"leader/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		for _, s := range c.servers {
			if strings.Contains(string(kv.Value), s.address) {
				all = append(all, s)
			}
		}
	}
	return all
}

// version returns the number of writes of a key below the prefix.
func (c *cluster) version(t testing.TB, key string) int64 {
	t.Helper()
	client := c.client(t)
	defer client.Close()
	resp, err := client.Get(client.Ctx(), prefix+key)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) == 0 {
		return 0
	}
	return resp.Kvs[0].Version
}

// client returns a client of etcd without relays.
func (c *cluster) client(t testing.TB) *clientv3.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	client, err := clientv3.New(clientv3.Config{Endpoints: c.etcd.Endpoints(), Context: ctx})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// keeper is the state of etcd at one revision. Its methods check the next changes.
type keeper struct {
	leaders  map[string]*clientv3.Event // the election keys
	fence    string                     // the election key of the active server, once it has moved its fence
	epoch    uint64
	floor    lock.Token                     // the last token that was reserved before this epoch
	reserved lock.Token                     // the last token that is reserved now
	held     map[string]map[lock.Token]bool // the tokens of the holds of each name
	grants   map[lock.Token]string          // the names of all grants
	chunks   map[string]string              // of the history, by key
}

// active returns the election key of the active server; nil: none is active.
func (k *keeper) active() (first *clientv3.Event) {
	for _, e := range k.leaders {
		if first == nil || e.Kv.CreateRevision < first.Kv.CreateRevision {
			first = e
		}
	}
	return first
}

// apply applies a transaction, and returns an error if it breaks a rule.
func (k *keeper) apply(txn []*clientv3.Event) error {
	before := k.active()
	epoch, changed := "", false
	reserved := k.reserved
	for _, e := range txn {
		key, ok := strings.CutPrefix(string(e.Kv.Key), prefix)
		if !ok {
			continue
		}
		kind, rest, _ := strings.Cut(key, "/")
		gone := e.Type == clientv3.EventTypeDelete
		switch {
		case kind == "leader" && gone:
			delete(k.leaders, key)
		case kind == "leader":
			k.leaders[key] = e
			if before != nil && string(before.Kv.Key) == string(e.Kv.Key) {
				k.fence = key
			}
		case kind == "epoch":
			epoch = string(e.Kv.Value)
		case kind == "tokens":
			n, err := strconv.ParseUint(string(e.Kv.Value), 10, 64)
			if err != nil || lock.Token(n) < reserved {
				return fmt.Errorf("tokens up to %s are reserved after %d", e.Kv.Value, reserved)
			}
			reserved = lock.Token(n)
		case kind == "lock":
			changed = true
			if err := k.change(rest, gone); err != nil {
				return err
			}
		case kind == "history" && !gone:
			changed = true
			if earlier, ok := k.chunks[key]; ok && earlier != string(e.Kv.Value) {
				return fmt.Errorf("%s was overwritten with another value", key)
			}
			k.chunks[key] = string(e.Kv.Value)
		}
	}
	if epoch != "" {
		n, err := strconv.ParseUint(epoch, 10, 32)
		if err != nil || n != k.epoch+1 {
			return fmt.Errorf("epoch %s follows %d", epoch, k.epoch)
		}
		if before == nil || prefix+k.fence != string(before.Kv.Key) {
			return fmt.Errorf("epoch %s began before its server moved the fence", epoch)
		}
		k.epoch, k.floor = n, k.reserved
	}
	k.reserved = reserved
	if changed && before == nil {
		return errors.New("a change while no server was active")
	}
	for name, tokens := range k.held {
		if len(tokens) > 1 {
			return fmt.Errorf("%s has the holds %v", name, slices.Collect(maps.Keys(tokens)))
		}
	}
	return nil
}

// change applies a change of a hold. In a transaction the end of a hold may come after the next grant of its name.
func (k *keeper) change(key string, gone bool) error {
	i := strings.LastIndexByte(key, '/')
	n, err := strconv.ParseUint(key[i+1:], 16, 64)
	if err != nil {
		return err
	}
	name, token := "/"+key[:i], lock.Token(n)
	if k.held[name] == nil {
		k.held[name] = make(map[lock.Token]bool)
	}
	switch {
	case gone:
		delete(k.held[name], token)
	case k.held[name][token]: // a change, or a batch that was sent twice
	case k.grants[token] != "":
		return fmt.Errorf("%s has token %d, which was granted for %s", name, token, k.grants[token])
	case token <= k.floor || token > k.reserved:
		return fmt.Errorf("%s has token %d in epoch %d, whose tokens are above %d, up to %d", name, token, k.epoch, k.floor, k.reserved)
	default:
		k.held[name][token], k.grants[token] = true, name
	}
	return nil
}

// wrongInEtcd checks all transactions of etcd. Each grant has a token that its epoch reserved; tokens and epochs grow; no lock has two holds; no token
// is granted twice; no part of the history is replaced; and each grant with a 257 exists. It returns "" if nothing is wrong.
func (h *history) wrongInEtcd() string {
	h.c.t.Helper()
	for _, s := range h.c.servers {
		s.kill()
	}
	k := keeper{
		leaders: make(map[string]*clientv3.Event), held: make(map[string]map[lock.Token]bool), grants: make(map[lock.Token]string),
		chunks: make(map[string]string),
	}
	changes := h.c.changes(h.c.t)
	for i, txn := range changes {
		if err := k.apply(txn); err != nil {
			return fmt.Sprintf("etcd's revision %d: %v\n%s", txn[0].Kv.ModRevision, err, show(changes[max(0, i-20):i+1]))
		}
	}
	for _, o := range h.Ops() {
		if o.Verb == locktest.MKD && o.Result == locktest.Done && k.grants[o.Token] != o.Name {
			return fmt.Sprintf("the grant of %s with token %d is not in etcd", o.Name, o.Token)
		}
	}
	h.c.t.Logf("etcd: %d transactions, %d grants, %d epochs", len(changes), len(k.grants), k.epoch)
	return ""
}

// show returns transactions as text.
func show(txns [][]*clientv3.Event) string {
	var b strings.Builder
	for _, txn := range txns {
		for _, e := range txn {
			fmt.Fprintf(&b, "%d %s %s %.300q\n", e.Kv.ModRevision, e.Type, e.Kv.Key, e.Kv.Value)
		}
	}
	return b.String()
}
