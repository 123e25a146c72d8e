//go:build linux

package etcd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "6") // most tests wait most of the time
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for something that must happen.
const patience = time.Minute

// scene is a cluster of etcd with the servers that are opened on it.
type scene struct {
	testing.TB
	etcd  *etcdtest.Cluster
	ttl   time.Duration       // so long that no lease ends because the machine is slow
	clock *locktest.FakeClock // of every server that has no other
}

// short is the ttl where a lease must end.
const short = 3 * time.Second

// newScene starts a cluster of etcd. The test runs beside others.
func newScene(t *testing.T, members int, flags ...string) *scene {
	t.Parallel()
	return sceneOn(t, etcdtest.Start(t, members, flags...))
}

func sceneOn(t testing.TB, etcd *etcdtest.Cluster) *scene {
	return &scene{TB: t, etcd: etcd, ttl: patience, clock: locktest.NewRunningClock()}
}

var prefixes atomic.Int64

// options returns those of a server with a prefix of its own.
func (s *scene) options() Options {
	return Options{
		Endpoints: s.etcd.Endpoints(), Prefix: fmt.Sprintf("/test-%d/", prefixes.Add(1)), TTL: s.ttl, Clock: s.clock, BootID: s.clock.BootID(),
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
	*Log
	stop  func()
	ended chan struct{}
	err   error // of Run, once ended is closed
	token lock.Token
}

// campaign makes the server the active one.
func (s *scene) campaign(c *Cluster) *term {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	log, err := c.Campaign(ctx)
	if err != nil {
		s.Fatal("campaign: ", err)
	}
	return s.run(log)
}

func (s *scene) run(log *Log) *term {
	ctx, stop := context.WithCancel(context.Background())
	t := &term{Log: log, stop: stop, ended: make(chan struct{}), token: log.before}
	go func() {
		defer close(t.ended)
		t.err = log.Run(ctx)
	}()
	s.Cleanup(func() {
		stop()
		<-t.ended
		log.Close()
	})
	return t
}

// halt ends Run, so that the lease is not renewed any more.
func (t *term) halt() {
	t.stop()
	<-t.ended
}

// resign ends a term in order, so that no server is active.
func (s *scene) resign(t *term) {
	s.Helper()
	t.halt()
	if err := t.Resign(context.Background()); err != nil {
		s.Fatal(err)
	}
}

// over waits for the end of the term, and returns the error of Run.
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

// until waits for a condition.
func (s *scene) until(what string, is func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal("it does not come to this: ", what)
		}
	}
}

// standby campaigns at the side.
type standby struct {
	active chan *Log // gets the log when it is the active one; closed without one if the campaign was cancelled
	cancel func()
}

func (s *scene) standBy(c *Cluster) *standby {
	ctx, cancel := context.WithCancel(context.Background())
	b := &standby{active: make(chan *Log, 1), cancel: cancel}
	var running sync.WaitGroup
	running.Go(func() {
		defer close(b.active)
		if log, err := c.Campaign(ctx); err == nil {
			b.active <- log
		}
	})
	s.Cleanup(func() {
		cancel()
		running.Wait()
		select {
		case log := <-b.active:
			if log != nil {
				log.Close()
			}
		default:
		}
	})
	return b
}

// takesOver waits until the server is the active one.
func (s *scene) takesOver(b *standby) *term {
	s.Helper()
	select {
	case log := <-b.active:
		if log == nil {
			s.Fatal("the campaign was cancelled")
		}
		return s.run(log)
	case <-time.After(patience):
		s.Fatal("no server takes over")
	}
	return nil
}

var rule = &lock.Rule{Match: "/locks/**", MaxAge: 24 * time.Hour, MaxIdle: 30 * time.Minute, OnDisconnect: lock.KeepOnDisconnect, Release: lock.ReleaseAddress}

// grant returns the record of a grant with the next token.
func (t *term) grant(name lock.Name) lock.Record {
	t.token++
	now := t.c.o.Clock.Now()
	owner := lock.Owner{Account: "ada", Address: "192.0.2.1", Session: lock.SessionID(t.epoch)<<40 | 17}
	h := lock.Hold{Name: name, Token: t.token, Owner: owner, Acquired: now, Renewed: now, Rule: rule}
	return lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: h, By: owner, At: now}
}

// ended returns the record of the end of a hold.
func (t *term) endOf(h lock.Hold) lock.Record {
	return lock.Record{Kind: lock.Ended, Cause: lock.CauseRelease, Hold: h, By: h.Owner, At: t.c.o.Clock.Now()}
}

// commit appends records and waits for them.
func (s *scene) commit(t *term, records ...lock.Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return t.Wait(ctx, t.Append(records), true)
}

// acquire commits a grant.
func (s *scene) acquire(t *term, name lock.Name) lock.Hold {
	s.Helper()
	r := t.grant(name)
	if err := s.commit(t, r); err != nil {
		s.Fatalf("acquire %s: %v", name, err)
	}
	return r.Hold
}

// release commits the end of a hold.
func (s *scene) release(t *term, h lock.Hold) {
	s.Helper()
	if err := s.commit(t, t.endOf(h)); err != nil {
		s.Fatalf("release %s: %v", h.Name, err)
	}
}

// holds returns what stands in etcd.
func (s *scene) holds(c *Cluster) map[lock.Name]lock.Hold {
	s.Helper()
	holds, err := c.load(context.Background(), 0)
	if err != nil {
		s.Fatal(err)
	}
	all := make(map[lock.Name]lock.Hold)
	for _, h := range holds {
		if _, ok := all[h.Name]; ok {
			s.Errorf("two holds of %s", h.Name)
		}
		all[h.Name] = h
	}
	return all
}

// held checks the names that are held.
func (s *scene) held(c *Cluster, want ...lock.Name) {
	s.Helper()
	var got []lock.Name
	for name := range s.holds(c) {
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		s.Errorf("held are %q, want %q", got, want)
	}
}

// causes returns those of all entries of the history.
func (s *scene) causes(c *Cluster) (all []lock.Cause) {
	s.Helper()
	for entry, err := range c.entries(s.Context(), nil) {
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, entry.Cause)
	}
	return all
}

func isSuspended(err error) bool {
	var suspended *lock.SuspendedError
	return errors.As(err, &suspended)
}

// must makes a request to etcd beside the servers.
func (s *scene) must(c *Cluster, f call) {
	s.Helper()
	if err := c.members.do(s.Context(), f); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) remove(c *Cluster, key string) {
	s.Helper()
	s.must(c, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Delete(ctx, key)
		return err
	})
}

// prefer makes a member the next one that is asked.
func (m *members) prefer(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.current = i
}

// intercept puts f between a client and its member.
func (s *scene) intercept(c *Cluster, i int, f grpc.UnaryClientInterceptor) {
	s.Helper()
	config := c.members.config
	config.Endpoints = []string{c.members.all[i].endpoint}
	config.DialOptions = append(config.DialOptions[:len(config.DialOptions):len(config.DialOptions)], grpc.WithChainUnaryInterceptor(f))
	client, err := clientv3.New(config)
	if err != nil {
		s.Fatal(err)
	}
	one := c.members.all[i]
	one.mu.Lock()
	defer one.mu.Unlock()
	one.client.Close()
	one.client = client
}

const txnMethod = "/etcdserverpb.KV/Txn"
