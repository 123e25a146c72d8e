//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// moving is a server's state directory and etcd, without the server.
type moving struct {
	*testing.T
	endpoints []string
	dir, file string
	token     lock.Token     // of the last grant
	session   lock.SessionID // the first one of the last start
}

func newMoving(t *testing.T, members int) *moving {
	m := &moving{T: t, dir: t.TempDir(), endpoints: etcdtest.Start(t, members).Endpoints()}
	m.file = m.path("ftplockd.toml")
	text := fmt.Sprintf("root = '%[1]s/files'\nstate = '%[1]s/state'\n[etcd]\nshared_state = '%[1]s/shared'\nendpoints = ['http://%s']\n",
		m.dir, strings.Join(m.endpoints, "', 'http://"))
	if err := os.WriteFile(m.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *moving) path(name string) string { return filepath.Join(m.dir, name) }

// migrate checks the status and the output of the command, which it returns.
func (m *moving) migrate(to string, status int, want string) string {
	m.Helper()
	out, errs, got := runCommand(m.Context(), "migrate", "--to", to, "--config", m.file)
	if got != status || !strings.Contains(out+errs, want) {
		m.Fatalf("--to %s: status %d, want %d\n%s%swant %q", to, got, status, out, errs, want)
	}
	return out
}

// journal runs f with the locks of a server without etcd.
func (m *moving) journal(f func(*lock.Table)) {
	m.Helper()
	clock := lock.NewSystemClock()
	log, err := journal.Open(journal.Options{Dir: m.path("state"), Clock: clock, BootID: clock.BootID()})
	if err != nil {
		m.Fatal(err)
	}
	f(m.table(log, clock))
	if err := log.Close(); err != nil {
		m.Fatal(err)
	}
}

// etcd runs f with the locks of a server with etcd.
func (m *moving) etcd(f func(*lock.Table)) {
	m.Helper()
	clock := lock.NewSystemClock()
	c, err := etcd.Open(m.Context(), etcd.Options{Endpoints: m.endpoints, Clock: clock, BootID: clock.BootID(), Self: etcd.Server{Name: "other"}})
	if err != nil {
		m.Fatal(err)
	}
	defer c.Close()
	log, err := c.Campaign(m.Context())
	if err != nil {
		m.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- log.Run(ctx) }()
	f(m.table(log, clock))
	stop()
	if err := <-over; err != nil {
		m.Error("run: ", err)
	}
	if err := log.Resign(context.Background()); err != nil {
		m.Error("resign: ", err)
	}
}

// table returns the locks of one start of a server.
func (m *moving) table(log lock.Log, clock lock.Clock) *lock.Table {
	m.Helper()
	rules, err := lock.NewRules([]lock.Rule{{Match: "/locks/*", MaxAge: time.Hour}})
	if err != nil {
		m.Fatal(err)
	}
	t, err := lock.NewTable(m.Context(), lock.Options{Log: log, Clock: clock, Rules: rules})
	if err != nil {
		m.Fatal(err)
	}
	if id := t.Open(lock.Owner{}).ID(); id <= m.session {
		m.Errorf("session %s after %s", id, m.session)
	} else {
		m.session = id
	}
	return t
}

// acquire acquires locks, whose tokens must grow, and returns the session that holds them.
func (m *moving) acquire(t *lock.Table, names ...lock.Name) *lock.Session {
	m.Helper()
	s := t.Open(lock.Owner{Account: "ada", Address: "192.0.2.7", Nonce: "word"})
	for _, name := range names {
		h, _, _, err := s.AcquireOrWait(m.Context(), name, nil)
		if err != nil || h.Token <= m.token {
			m.Fatalf("%s has token %d after %d: %v", name, h.Token, m.token, err)
		}
		m.token = h.Token
	}
	return s
}

// release acquires a lock and releases it.
func (m *moving) release(t *lock.Table, name lock.Name) {
	m.Helper()
	if _, _, err := m.acquire(t, name).ReleaseOrWait(m.Context(), name, nil); err != nil {
		m.Fatal(err)
	}
}

// holds returns all that stand.
func (m *moving) holds(t *lock.Table) []lock.Hold {
	all := t.Holds()
	for i := range all {
		for _, at := range []*lock.Instant{&all[i].Acquired, &all[i].Renewed} {
			at.Wall = at.Wall.UTC().Round(0)
		}
	}
	slices.SortFunc(all, func(a, b lock.Hold) int { return int(a.Token) - int(b.Token) })
	return all
}

func (m *moving) same(where string, t *lock.Table, want []lock.Hold) {
	m.Helper()
	if got := m.holds(t); len(want) == 0 || !reflect.DeepEqual(got, want) {
		m.Errorf("%s are\n%+v, want\n%+v", where, got, want)
	}
}

// history returns the causes and tokens of a lock.
func (m *moving) history(name lock.Name) (lines []string) {
	for e, err := range journal.History(m.path("state"), name) {
		if err != nil {
			m.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(e.Cause, " ", e.Token))
	}
	return lines
}

func TestLocksMoveToEtcdAndBack(t *testing.T) {
	t.Parallel()
	m := newMoving(t, 1)
	var stood []lock.Hold
	m.journal(func(s *lock.Table) {
		m.release(s, "/locks/gone")
		m.acquire(s, "/locks/a", "/locks/b")
		stood = m.holds(s)
	})
	history := m.history("/locks/gone")

	out := m.migrate("etcd", exitOK, fmt.Sprintf("2 locks and 4 lines of history are in etcd, below /ftplockd/; tokens go on above %d\n", m.token))
	if want := m.path("state/migrated-"); !strings.Contains(out, want) {
		t.Errorf("it prints\n%swant %q", out, want)
	}
	m.migrate("etcd", exitFailure, "have moved to another log")
	if _, errs, status := runCommand(t.Context(), "--root", m.path("files"), "--state", m.path("state"), "--listen", "127.0.0.1:0"); status != exitFailure ||
		!strings.Contains(errs, "have moved to another log") || !strings.Contains(errs, m.path("state/migrated-")) {
		t.Errorf("a server that is started there: status %d, %s", status, errs)
	}

	m.etcd(func(s *lock.Table) {
		m.same("the holds in etcd", s, stood)
		m.migrate("journal", exitFailure, "a server is active or stands by; stop all of them first")
		m.acquire(s, "/locks/c")
		m.release(s, "/locks/other") // the largest token is of no hold
		stood = m.holds(s)
	})

	m.migrate("journal", exitOK, "3 locks and 7 lines of history are in "+m.path("state")+"; tokens go on above ")
	m.migrate("journal", exitFailure, "is closed: its locks have moved to "+m.path("state")+" on ")
	m.journal(func(s *lock.Table) {
		m.same("the holds in the journal", s, stood)
		m.acquire(s, "/locks/e")
		stood = m.holds(s)
	})
	if got := m.history("/locks/gone"); len(history) != 2 || !slices.Equal(got, history) {
		t.Errorf("history %q, want %q", got, history)
	}

	m.migrate("etcd", exitOK, "4 locks and 8 lines")
	m.etcd(func(s *lock.Table) {
		m.same("the holds in etcd again", s, stood)
		m.acquire(s, "/locks/f")
	})
}

func TestAMoveIsRefused(t *testing.T) {
	t.Parallel()
	m := newMoving(t, 1)
	m.migrate("journal2", exitUsage, "say where the locks are to go")
	m.migrate("etcd", exitFailure, "no such file or directory")
	if err := os.Mkdir(m.path("state"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.migrate("etcd", exitFailure, m.path("state")+" has no journal, so no locks are there that could be moved: ")
	if _, errs, status := runCommand(t.Context(), "migrate", "--to", "etcd"); status != exitUsage || !strings.Contains(errs, "there is no cluster") {
		t.Errorf("without a file: status %d, %s", status, errs)
	}
	m.journal(func(s *lock.Table) {
		m.acquire(s, "/locks/a")
		m.migrate("etcd", exitFailure, "uses this state directory")
	})
	m.migrate("journal", exitFailure, "has locks already: move ")
	m.token, m.session = 0, 0 // etcd has numbers of its own
	m.etcd(func(s *lock.Table) {
		m.acquire(s, "/locks/a")
		m.migrate("etcd", exitFailure, "etcd: ")
	})
	m.migrate("etcd", exitFailure, "remove them (etcdctl del --prefix /ftplockd/lock/; etcdctl del --prefix /ftplockd/history/) and call this again")
}

// Whenever a move breaks off, the same command completes it, or prints what to do first.
func TestAMoveThatBreaksOffIsDoneAgain(t *testing.T) {
	t.Parallel()
	m := newMoving(t, 1)
	var stood []lock.Hold
	m.journal(func(s *lock.Table) {
		for i := range 300 {
			m.acquire(s, lock.Name(fmt.Sprintf("/locks/%d", i)))
		}
		stood = m.holds(s)
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: m.endpoints})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	broken := 0
	for _, to := range []string{"etcd", "journal", "etcd", "journal"} {
		const most = 5 // broken off so often
		for tries, done := 0, false; !done; tries++ {
			ctx, cancel := context.WithCancel(t.Context())
			timer := time.AfterFunc(rand.N(time.Duration(tries+1)*50*time.Millisecond), cancel)
			if tries >= most {
				timer.Stop()
			}
			out, errs, status := runCommand(ctx, "migrate", "--to", to, "--config", m.file)
			timer.Stop()
			cancel()
			switch {
			case status == exitOK:
				done = true
				if !strings.Contains(out, "300 locks and 300 lines of history") {
					t.Errorf("it prints %q", out)
				}
			case strings.Contains(errs, "its locks have moved to "+m.path("state")+" on "):
				done = true // it broke off before the answer
			case strings.Contains(errs, "etcdctl del"):
				for _, prefix := range []string{"/ftplockd/lock/", "/ftplockd/history/"} {
					if _, err := client.Delete(t.Context(), prefix, clientv3.WithPrefix()); err != nil {
						t.Fatal(err)
					}
				}
			case strings.Contains(errs, "has locks already: move "+m.path("state/journal")+" away first"):
				if err := os.RemoveAll(m.path("state/journal")); err != nil {
					t.Fatal(err)
				}
			case tries > most+1:
				t.Fatalf("--to %s: %s", to, errs)
			default:
				broken++
			}
		}
		if to == "etcd" {
			m.etcd(func(s *lock.Table) { m.same("the holds in etcd", s, stood) })
		} else {
			m.journal(func(s *lock.Table) { m.same("the holds in the journal", s, stood) })
		}
	}
	t.Logf("it broke off %d times", broken)
}
