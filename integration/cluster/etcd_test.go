//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// prefix is that of all keys.
const prefix = "/ftplockd/"

// changes returns all that was ever written to etcd, each transaction by itself, in order. Nobody may write meanwhile.
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

// revision returns etcd's.
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

// version returns how often a key below the prefix was written.
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

// client is a way to etcd that nothing disturbs.
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

// line is what is looked at of a line of the history.
type line struct {
	Base  lock.Token
	Event lock.Cause
	Name  string
	At    struct {
		BootID string `json:"boot_id"`
	}
	By    struct{ Session uint64 }
	Holds []struct{ Token lock.Token }
}

// keeper is what etcd's history must be like: what the checker knows at one revision of it.
type keeper struct {
	leaders map[string]*clientv3.Event // the keys of all that stand for election
	epoch   uint64
	token   lock.Token            // the last one
	held    map[string]bool       // the locks
	grants  map[lock.Token]string // the names of all
	lines   map[string]int64      // the revisions of all lines of the history
}

// active is the election key of the server that is the active one; nil: nobody is.
func (k *keeper) active() (first *clientv3.Event) {
	for _, e := range k.leaders {
		if first == nil || e.Kv.CreateRevision < first.Kv.CreateRevision {
			first = e
		}
	}
	return first
}

// apply takes over one transaction, and says what is wrong with it.
func (k *keeper) apply(txn []*clientv3.Event) error {
	before := k.active()
	var l *line
	var name, epoch string
	locks, moved := 0, false
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
			moved = moved || before != nil && string(before.Kv.Key) == string(e.Kv.Key)
		case kind == "epoch":
			epoch = string(e.Kv.Value)
		case kind == "lock":
			name = rest
			locks++
		case kind == "history" && !gone:
			if earlier, ok := k.lines[key]; ok {
				return fmt.Errorf("%s was written at revision %d already", key, earlier)
			}
			k.lines[key] = e.Kv.ModRevision
			if l != nil {
				return fmt.Errorf("two lines of history at once")
			}
			l = new(line)
			if err := json.Unmarshal(e.Kv.Value, l); err != nil {
				return err
			}
		}
	}
	if epoch != "" {
		n, err := strconv.ParseUint(epoch, 10, 32)
		if err != nil || n != k.epoch+1 {
			return fmt.Errorf("epoch %s follows %d", epoch, k.epoch)
		}
		if !moved {
			return fmt.Errorf("epoch %s began without its server's fence", epoch)
		}
		k.epoch = n
	}
	if locks > 1 || locks == 1 && l == nil {
		return fmt.Errorf("%d locks were changed with the line %+v", locks, l)
	}
	if l == nil {
		return nil
	}
	if before == nil {
		return fmt.Errorf("%+v was written while nobody was active", *l)
	}
	// The id of a boot is an address here where servers have clocks of their own.
	if wrote := l.At.BootID; strings.Contains(wrote, ":") && !strings.Contains(string(before.Kv.Value), wrote) {
		return fmt.Errorf("%+v was written by another server than %s", *l, before.Kv.Value)
	}
	return k.change(*l, name, locks == 1, lock.Token(txn[0].Kv.ModRevision))
}

// change takes over a change of a lock.
func (k *keeper) change(l line, name string, locks bool, revision lock.Token) error {
	switch l.Event {
	case lock.CauseAcquire, lock.CauseRelease:
		if l.By.Session>>32 != k.epoch {
			return fmt.Errorf("%+v was written in epoch %d", l, k.epoch)
		}
	}
	if !locks {
		return nil // of a file
	}
	if l.Name != name {
		return fmt.Errorf("%+v is of another lock than %s", l, name)
	}
	if l.Event != lock.CauseAcquire {
		k.held[name] = len(l.Holds) > 0
		return nil
	}
	token := l.Base + revision
	switch {
	case k.held[name]:
		return fmt.Errorf("%+v: it is held", l)
	case token <= k.token:
		return fmt.Errorf("token %d follows %d", token, k.token)
	case len(l.Holds) != 1 || l.Holds[0].Token != 0:
		return fmt.Errorf("%+v: that is not one new hold", l)
	}
	k.token, k.held[name], k.grants[token] = token, true, name
	return nil
}

// wrongInEtcd looks at all that was ever written to etcd: each change was made by the server whose election key was the oldest, in
// its epoch; tokens and epochs grow; nobody got what was held; no line of the history was written twice; and each grant that
// a client was told of is there. "": nothing is wrong.
func (h *history) wrongInEtcd() string {
	h.c.t.Helper()
	for _, s := range h.c.servers {
		s.kill()
	}
	k := keeper{leaders: make(map[string]*clientv3.Event), held: make(map[string]bool), grants: make(map[lock.Token]string), lines: make(map[string]int64)}
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

// show is some transactions as text.
func show(txns [][]*clientv3.Event) string {
	var b strings.Builder
	for _, txn := range txns {
		for _, e := range txn {
			fmt.Fprintf(&b, "%d %s %s %.300s\n", e.Kv.ModRevision, e.Type, e.Kv.Key, e.Kv.Value)
		}
	}
	return b.String()
}
