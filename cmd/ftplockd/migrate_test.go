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

// moving is a server of which only the places of its locks are there.
type moving struct {
	*testing.T
	endpoints []string
	dir, file string
}

func newMoving(t *testing.T, members int) *moving {
	m := &moving{T: t, dir: t.TempDir(), endpoints: etcdtest.Start(t, members).Endpoints()}
	m.file = filepath.Join(m.dir, "ftplockd.toml")
	text := fmt.Sprintf("root = '%[1]s/files'\nstate = '%[1]s/state'\n[etcd]\nshared_state = '%[1]s/shared'\nendpoints = ['http://%s']\n",
		m.dir, strings.Join(m.endpoints, "', 'http://"))
	if err := os.WriteFile(m.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *moving) path(name string) string { return filepath.Join(m.dir, name) }

// migrate moves, which must print the text; or fail with it, if status is no success.
func (m *moving) migrate(to string, status int, want string) string {
	m.Helper()
	out, errs, got := runCommand(m.Context(), "migrate", "--to", to, "--config", m.file)
	if got != status || !strings.Contains(out+errs, want) {
		m.Fatalf("--to %s: status %d, want %d\n%s%swant %q", to, got, status, out, errs, want)
	}
	return out
}

// journal has f change the locks of a server with a journal.
func (m *moving) journal(f func(s *journal.Store)) {
	m.Helper()
	s, err := journal.Open(journal.Options{Dir: m.path("state"), Clock: lock.NewSystemClock()})
	if err != nil {
		m.Fatal(err)
	}
	f(s)
	if err := s.Close(); err != nil {
		m.Fatal(err)
	}
}

// etcd has f change the locks of a server with etcd.
func (m *moving) etcd(f func(s *etcd.Store)) {
	m.Helper()
	c, err := etcd.Open(m.Context(), etcd.Options{Endpoints: m.endpoints, Clock: lock.NewSystemClock(), Self: etcd.Server{Name: "other"}})
	if err != nil {
		m.Fatal(err)
	}
	defer c.Close()
	s, err := c.Campaign(m.Context())
	if err != nil {
		m.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	f(s)
	stop()
	if err := <-over; err != nil {
		m.Error("run: ", err)
	}
	if err := s.Resign(context.Background()); err != nil {
		m.Error("resign: ", err)
	}
	if err := s.Close(); err != nil {
		m.Error(err)
	}
}

// commit has an account take a lock, "": give it back. It returns the token.
func (m *moving) commit(s lock.Store, name lock.Name, revision lock.Token, account string) lock.Token {
	m.Helper()
	now := lock.NewSystemClock().Now()
	now.Wall = now.Wall.UTC().Round(0)
	change := lock.Change{Name: name, If: revision, Cause: lock.CauseRelease}
	if account != "" {
		owner := lock.Owner{Account: account, Address: "192.0.2.7", Session: 3<<32 | 5, Nonce: "a word"}
		if account == lock.HostAccount {
			owner = lock.Owner{Account: account}
		}
		change.Cause, change.By = lock.CauseAcquire, owner
		change.Holds = []lock.Hold{{Owner: owner, Acquired: now, Renewed: now, Rule: lock.Rule{Match: "/locks/*", MaxAge: time.Hour}}}
	}
	token, err := s.Commit(m.Context(), change)
	if err != nil {
		m.Fatal(name, ": ", err)
	}
	return token
}

// holds are all that stand.
func (m *moving) holds(s lock.Store) map[lock.Name][]lock.Hold {
	m.Helper()
	all := make(map[lock.Name][]lock.Hold)
	for record, err := range s.All(m.Context()) {
		if err != nil {
			m.Fatal(err)
		}
		for i := range record.Holds {
			h := &record.Holds[i]
			h.Acquired.Wall, h.Renewed.Wall = h.Acquired.Wall.UTC().Round(0), h.Renewed.Wall.UTC().Round(0)
		}
		all[record.Name] = record.Holds
	}
	return all
}

func (m *moving) same(where string, got, want map[lock.Name][]lock.Hold) {
	m.Helper()
	if !reflect.DeepEqual(got, want) {
		m.Errorf("%s: %+v, want %+v", where, got, want)
	}
}

// past is what "ftplockd history" prints.
func (m *moving) past(dir string, name lock.Name) (causes []string) {
	for e, err := range journal.History(dir, name) {
		if err != nil {
			m.Fatal(err)
		}
		causes = append(causes, fmt.Sprint(e.Cause, " ", e.Token))
	}
	return causes
}

func TestLocksMoveToEtcdAndBack(t *testing.T) {
	t.Parallel()
	m := newMoving(t, 3)
	for _, dir := range []string{"files/locks/a", "files/locks/full/x"} {
		if err := os.MkdirAll(m.path(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var tokens []lock.Token
	grows := func(token lock.Token) lock.Token {
		t.Helper()
		if n := len(tokens); n > 0 && token <= tokens[n-1] {
			t.Errorf("token %d after %d", token, tokens[n-1])
		}
		tokens = append(tokens, token)
		return token
	}
	var stood map[lock.Name][]lock.Hold
	m.journal(func(s *journal.Store) {
		m.commit(s, "/locks/gone", grows(m.commit(s, "/locks/gone", 0, "ada")), "")
		for _, name := range []lock.Name{"/locks/a", "/locks/full"} {
			if err := s.SetDirectory(name, grows(m.commit(s, name, 0, "ada")), lock.DirectoryID{Inode: 7}); err != nil {
				t.Fatal(err)
			}
		}
		grows(m.commit(s, "/locks/host", 0, lock.HostAccount))
		stood = m.holds(s)
	})
	delete(stood, "/locks/host")
	for _, holds := range stood {
		holds[0].Directory = lock.DirectoryID{}
	}
	history := m.past(m.path("state"), "/locks/gone")

	out := m.migrate("etcd", exitOK, "2 locks and 5 lines of history are in etcd, below /ftplockd/; tokens go on above ")
	for _, want := range []string{"/locks/host is not moved", "/locks/full: the directory of the lock stays", m.path("state/migrated-")} {
		if !strings.Contains(out, want) {
			t.Errorf("it says\n%swant %q", out, want)
		}
	}
	if names, err := filepath.Glob(m.path("files/locks/*")); err != nil || !slices.Equal(names, []string{m.path("files/locks/full")}) {
		t.Errorf("directories %v, %v", names, err)
	}
	m.migrate("etcd", exitFailure, "have moved to another store")
	if _, errs, status := runCommand(t.Context(), "--root", m.path("files"), "--state", m.path("state"), "--listen", "127.0.0.1:0"); status != exitFailure ||
		!strings.Contains(errs, "have moved to another store: what was here is in "+m.path("state/migrated-")) {
		t.Errorf("a server that is started there: status %d, %s", status, errs)
	}

	m.etcd(func(s *etcd.Store) {
		m.same("in etcd", m.holds(s), stood)
		m.migrate("journal", exitFailure, "a server is active or stands by; stop all of them first")
		if got := s.Generation(); got < 4 {
			t.Errorf("epoch %d is that of sessions that have locks", got)
		}
		m.commit(s, "/locks/b", 0, "ben")
		grows(m.commit(s, "/locks/c", 0, "ben"))
		stood = m.holds(s)
	})

	m.migrate("journal", exitOK, "4 locks and 7 lines of history are in "+m.path("state")+"; tokens go on above ")
	m.migrate("journal", exitFailure, "is closed: its locks have moved to "+m.path("state")+" on ")
	m.journal(func(s *journal.Store) {
		m.same("in the journal", m.holds(s), stood)
		grows(m.commit(s, "/locks/d", 0, "eve"))
		stood = m.holds(s)
	})
	if got := m.past(m.path("state"), "/locks/gone"); len(history) != 2 || !slices.Equal(got, history) {
		t.Errorf("history %q, want %q", got, history)
	}

	m.migrate("etcd", exitOK, "5 locks and 8 lines")
	m.etcd(func(s *etcd.Store) {
		m.same("in etcd again", m.holds(s), stood)
		grows(m.commit(s, "/locks/e", 0, "eve"))
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
	m.journal(func(s *journal.Store) {
		m.commit(s, "/locks/a", 0, "ada")
		m.migrate("etcd", exitFailure, "uses this state directory")
	})
	m.migrate("journal", exitFailure, "has locks already: move ")
	journal := m.path("state/journal.jsonl")
	if err := os.Rename(journal, m.path("state/history/1.jsonl")); err != nil {
		t.Fatal(err)
	}
	m.migrate("journal", exitFailure, "has a history already: move ")
	if err := os.Rename(m.path("state/history/1.jsonl"), journal); err != nil {
		t.Fatal(err)
	}
	m.etcd(func(s *etcd.Store) {
		m.commit(s, "/locks/a", 0, "ada")
		m.migrate("etcd", exitFailure, "etcd: ")
	})
	m.migrate("etcd", exitFailure, "remove them (etcdctl del --prefix /ftplockd/lock/; etcdctl del --prefix /ftplockd/history/) and call this again")
}

// Whenever a move breaks off, the same command does it, or says what to do first. No lock is lost, and none is there twice.
func TestAMoveThatBreaksOffIsDoneAgain(t *testing.T) {
	t.Parallel()
	m := newMoving(t, 1)
	var stood map[lock.Name][]lock.Hold
	m.journal(func(s *journal.Store) {
		for i := range 300 {
			m.commit(s, lock.Name(fmt.Sprintf("/locks/%d", i)), 0, "ada")
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
		for tries, done := 0, false; !done; tries++ {
			ctx, cancel := context.WithCancel(t.Context())
			timer := time.AfterFunc(rand.N(time.Duration(tries+1)*50*time.Millisecond), cancel)
			if tries >= 8 {
				timer.Stop()
			}
			out, errs, status := runCommand(ctx, "migrate", "--to", to, "--config", m.file)
			timer.Stop()
			cancel()
			switch {
			case status == exitOK:
				done = true
				if !strings.Contains(out, "300 locks and 300 lines of history") {
					t.Errorf("it says %q", out)
				}
			case strings.Contains(errs, "its locks have moved to "+m.path("state")+" on "):
				done = true // it broke off before it heard so
			case tries > 8:
				t.Fatalf("--to %s: %s", to, errs)
			case strings.Contains(errs, "etcdctl del"):
				for _, prefix := range []string{"/ftplockd/lock/", "/ftplockd/history/"} {
					if _, err := client.Delete(t.Context(), prefix, clientv3.WithPrefix()); err != nil {
						t.Fatal(err)
					}
				}
			case strings.Contains(errs, "has locks already: move "+m.path("state/journal.jsonl")+" away first"):
				if err := os.Remove(m.path("state/journal.jsonl")); err != nil {
					t.Fatal(err)
				}
			default:
				broken++
			}
		}
		if to == "etcd" {
			m.etcd(func(s *etcd.Store) { m.same("in etcd", m.holds(s), stood) })
		} else {
			m.journal(func(s *journal.Store) { m.same("in the journal", m.holds(s), stood) })
		}
	}
	t.Logf("it broke off %d times", broken)
}
