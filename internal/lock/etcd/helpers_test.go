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

	"go.etcd.io/etcd/api/v3/mvccpb"
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

// patience is how long a test waits for a condition.
const patience = time.Minute

// scene is a cluster of etcd and the servers that use it.
type scene struct {
	testing.TB
	etcd  *etcdtest.Cluster
	ttl   time.Duration       // no lease ends because the machine is slow
	clock *locktest.FakeClock // of each server without a clock of its own
}

// short is the ttl of tests in which a lease must end.
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

// options returns the options of a server with a new prefix.
func (s *scene) options() Options {
	return Options{
		Endpoints: s.etcd.Endpoints(), Prefix: fmt.Sprintf("/test-%d/", prefixes.Add(1)), TTL: s.ttl, Margin: s.ttl / 5, Clock: s.clock,
		BootID: s.clock.BootID(), RequestTimeout: time.Second, Self: Server{Name: "a"},
	}
}

// open opens a server, which is closed with the test.
func (s *scene) open(o Options) *Cluster {
	s.Helper()
	if testing.Verbose() && o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(s.Output(), nil)).With("at", o.Self.Name)
	}
	c := Open(o)
	s.Cleanup(func() { c.Close() })
	if err := c.Check(s.Context()); err != nil {
		s.Fatal(err)
	}
	return c
}

// term is a term of an active server.
type term struct {
	*Log
	stop  func()
	ended chan struct{}
	err   error // of Run, once ended is closed
	token lock.Token
}

// campaign waits until the server is the active one.
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
	t := &term{Log: log, stop: stop, ended: make(chan struct{}), token: log.lastToken}
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

// halt ends Run, so nothing renews the lease any more.
func (t *term) halt() {
	t.stop()
	<-t.ended
}

// resign ends a term in order.
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
		s.Fatal("Run does not return")
		return nil
	}
}

// until waits for a condition.
func (s *scene) until(what string, is func() bool) {
	s.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatal("not in time: ", what)
		}
	}
}

// standby is a campaign in the background.
type standby struct {
	active chan *Log // gets the log when the server is the active one; closed when the campaign ends
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

// takesOver waits until the standby is the active server.
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

// endOf returns the record of the end of a hold.
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

// held checks the names that are held in etcd, in the order of their tokens, and returns the holds.
func (s *scene) held(c *Cluster, want ...lock.Name) []lock.Hold {
	s.Helper()
	holds, err := c.holds(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	var got []lock.Name
	for _, h := range holds {
		got = append(got, h.Name)
	}
	if !slices.Equal(got, want) {
		s.Errorf("%q are held, want %q", got, want)
	}
	return holds
}

// history returns the cause and the name of each entry of the history.
func (s *scene) history(c *Cluster) (all []string) {
	s.Helper()
	for entry, err := range c.History(s.Context(), "") {
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, string(entry.Cause)+" "+string(entry.Name))
	}
	return all
}

func isSuspended(err error) bool {
	var suspended *lock.SuspendedError
	return errors.As(err, &suspended)
}

// get reads a key; nil: there is none.
func (c *Cluster) get(ctx context.Context, key string) (*mvccpb.KeyValue, error) {
	resp, err := c.members.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(key)}, nil)
	return firstKeyRead(resp, 0), err
}

// must sends a request to etcd.
func (s *scene) must(c *Cluster, f call) {
	s.Helper()
	if err := c.members.sendToAny(s.Context(), f); err != nil {
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
