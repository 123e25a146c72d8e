//go:build linux

package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to happen.
const patience = time.Minute

// scene is a cluster of etcd with the servers that are opened on it.
type scene struct {
	locktest.Moves
	etcd  *etcdtest.Cluster
	ttl   time.Duration       // so long that no lease ends because the machine is slow
	clock *locktest.FakeClock // that of every server that has no other
}

// short is the ttl where a lease is to end.
const short = 5 * time.Second

// newScene starts a cluster of etcd. The test runs beside others.
func newScene(t *testing.T, members int, flags ...string) *scene {
	t.Parallel()
	return sceneOn(t, etcdtest.Start(t, members, flags...))
}

func sceneOn(t testing.TB, etcd *etcdtest.Cluster) *scene {
	clock := locktest.NewRunningClock()
	return &scene{Moves: locktest.Moves{TB: t, Clock: clock}, etcd: etcd, ttl: patience, clock: clock}
}

var prefixes atomic.Int64

// options are those of a server with a prefix of its own.
func (s *scene) options() Options {
	return Options{
		Endpoints: s.etcd.Endpoints(), Prefix: fmt.Sprintf("/test-%d/", prefixes.Add(1)), TTL: s.ttl, Clock: s.clock,
		RequestTimeout: time.Second, Self: Server{Name: "a"},
	}
}

// open opens a server, which is closed with the test.
func (s *scene) open(o Options) *Cluster {
	s.Helper()
	if testing.Verbose() && o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(s.Output(), nil)).With("at", o.Self.Name)
	}
	c, err := Open(s.Context(), o)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

// term is a server that has become the active one, and runs.
type term struct {
	*Store
	stop  func()
	ended chan struct{}
	err   error // what Run returned, once ended is closed
}

// campaign has the server become the active one.
func (s *scene) campaign(c *Cluster) *term {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	store, err := c.Campaign(ctx)
	if err != nil {
		s.Fatal("campaign: ", err)
	}
	return s.run(store)
}

func (s *scene) run(store *Store) *term {
	ctx, stop := context.WithCancel(context.Background())
	t := &term{Store: store, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		t.err = store.Run(ctx)
	}()
	s.Cleanup(func() {
		stop()
		<-t.ended
		store.Close()
	})
	return t
}

// halt ends the term without a word to anybody, as the end of the process does.
func (t *term) halt() {
	t.stop()
	<-t.ended
}

// over waits for the end of the term, and returns what Run returned.
func (s *scene) over(t *term) error {
	s.Helper()
	select {
	case <-t.ended:
		return t.err
	case <-time.After(patience):
		s.Fatal("Run goes on")
		return nil
	}
}

// until waits until something is so.
func (s *scene) until(what string, is func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal("it does not come to this: ", what)
		}
	}
}

// standby has a server campaign at the side.
type standby struct {
	active chan *Store // the store, when it is the active one; closed without one if the campaign was cancelled
	cancel func()
}

func (s *scene) standBy(c *Cluster) *standby {
	ctx, cancel := context.WithCancel(context.Background())
	b := &standby{active: make(chan *Store, 1), cancel: cancel}
	var running sync.WaitGroup
	running.Go(func() {
		defer close(b.active)
		if store, err := c.Campaign(ctx); err == nil {
			b.active <- store
		}
	})
	s.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return b
}

// takesOver waits until the server is the active one.
func (s *scene) takesOver(b *standby) *term {
	s.Helper()
	select {
	case store := <-b.active:
		if store == nil {
			s.Fatal("the campaign was cancelled")
		}
		return s.run(store)
	case <-time.After(patience):
		s.Fatal("nobody takes over")
	}
	return nil
}

var _ lock.Store = (*term)(nil)
