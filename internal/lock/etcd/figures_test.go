//go:build linux

package etcd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/internal/lock"
)

var figures = flag.Bool("figures", false, "measure Commit beside a guarded transaction, in TestFigures")

// TestFigures measures Commit, and beside it, in turns, a transaction straight on etcd that is guarded and carries a history line of the same size.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("only with -figures")
	}
	s := sceneOn(t, etcdtest.Start(t, 3))
	c := s.open(s.options())
	active := s.campaign(c)
	active.halt()
	bare, err := c.members.dial(t.Context(), s.etcd.Endpoints()[c.members.pick()])
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	for _, clients := range []int{1, 8, 64} {
		var commits, txns []time.Duration
		var committing, making time.Duration
		for range 5 {
			if err := active.renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			took, all := s.timed(clients, func(i int, each timer) error { return s.pair(active.Store, i, each) })
			committing, commits = committing+took, append(commits, all...)
			took, all = s.timed(clients, func(i int, each timer) error { return s.bare(active.Store, bare, i, each) })
			making, txns = making+took, append(txns, all...)
		}
		report := func(what string, took time.Duration, all []time.Duration) time.Duration {
			slices.Sort(all)
			p50 := all[len(all)/2]
			t.Logf("%2d clients, %s: %5.0f/s, p50 %v, p99 %v", clients, what, float64(len(all))/took.Seconds(),
				p50.Round(10*time.Microsecond), all[len(all)*99/100].Round(10*time.Microsecond))
			return p50
		}
		ours, theirs := report("Commit     ", committing, commits), report("transaction", making, txns)
		t.Logf("%2d clients, p50: %.2f times", clients, float64(ours)/float64(theirs))
	}
}

// timer makes one change and notes how long it took.
type timer func(func() error) error

// timed has f called by so many clients for two seconds.
func (s *scene) timed(clients int, f func(i int, each timer) error) (took time.Duration, all []time.Duration) {
	begun := time.Now()
	var mu sync.Mutex
	var errs []error
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			var mine []time.Duration
			var err error
			for err == nil && time.Since(begun) < 2*time.Second {
				err = f(i, func(change func() error) error {
					at := time.Now()
					err := change()
					mine = append(mine, time.Since(at))
					return err
				})
			}
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, mine...), append(errs, err)
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
	return time.Since(begun), all
}

// pair acquires a lock and releases it.
func (s *scene) pair(store *Store, i int, each timer) error {
	name, revision := lock.Name(fmt.Sprintf("/%d_lock", i)), lock.Token(0)
	for _, holds := range [][]lock.Hold{{s.Hold("ada")}, nil} {
		if err := each(func() (err error) { revision, err = s.Commit(store, name, revision, holds...); return err }); err != nil {
			return err
		}
	}
	return nil
}

// bare does the same to etcd as pair, by two transactions of the library.
func (s *scene) bare(store *Store, client *clientv3.Client, i int, each timer) error {
	key := fmt.Sprintf("%sbare/%d", store.c.keys, i)
	hold := []lock.Hold{s.Hold("ada")}
	value, line := encode(lockValue{Holds: holdValues(hold)}), encodeEntry(lock.Entry{
		Cause: lock.CauseAcquire, Name: lock.Name(fmt.Sprintf("/%d_lock", i)), At: s.clock.Now(), Holds: hold,
	}, 0)
	revision := int64(0)
	for _, op := range []clientv3.Op{clientv3.OpPut(key, value), clientv3.OpDelete(key)} {
		w := &write{value: line}
		store.place(w)
		store.placed(w)
		err := each(func() error {
			resp, err := client.Txn(context.Background()).
				If(store.fenced(store.fenceNow()), clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
				Then(op, clientv3.OpPut(store.c.keys.line(w.offset), line)).
				Commit()
			if err == nil && !resp.Succeeded {
				err = errors.New("the fence has moved")
			}
			if err == nil {
				revision = resp.Header.Revision
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
