package driver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/guessing"
	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/hostdir"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each wait. A test that waits so long has failed.
const patience = time.Minute

// password is the password of every account.
const password = "secret"

// testAccounts are the accounts by name.
type testAccounts map[string]config.Account

func (a testAccounts) Authenticate(_ context.Context, t config.Attempt) (config.Account, error) {
	account, ok := a[t.Name]
	if !ok || t.Password != password {
		return config.Account{}, config.ErrLogin
	}
	return account, nil
}

func someAccounts() testAccounts {
	all := testAccounts{}
	for _, a := range []config.Account{
		{Name: "phoneacc"},
		{Name: "other"},
		{Name: "reader", Access: config.AccessReadOnly},
		{Name: "writer", Access: config.AccessWriteOnly},
		{Name: "boss", Admin: true, Chmod: true},
		{Name: "bob", Home: "/home/bob", Start: "/work"},
		{Name: "few", MaxLocks: 1},
	} {
		if a.Home == "" {
			a.Home, a.Start = "/", "/"
		}
		all[a.Name] = a
	}
	return all
}

// setup has the options of a server that a test may change.
type setup struct {
	directories  bool
	rules        []lock.Rule
	jobs         []job.Rule // of those rules that are automatic
	settings     Settings
	control      control.Options
	tls          *tls.Config
	sessionReuse bool
	log          *slog.Logger
	events       func([]event.Event)
	wrap         func(*files.Tree) Tree // returns the tree that the driver gets; nil: the tree itself
	epoch        uint32                 // of this server, among several
}

func plainLocks(s *setup)  { s.directories = false }
func secure(s *setup)      { s.tls = certificate() }
func tlsRequired(s *setup) { s.tls = certificate(); s.settings.TLS.Mode = config.TLSRequired }

// server is a driver with its tree, locks and control connections, on loopback.
type server struct {
	t      *testing.T
	root   string // of the tree, on disk
	state  string
	addr   string
	driver *Server
	table  *lock.Table
	jobs   *job.Manager

	suspended atomic.Bool            // locks cannot change
	asked     atomic.Pointer[func()] // is called by valid
	memory    *locktest.Memory       // the log of the locks
	disk      *hostdir.Disk
	tree      *files.Tree
	clock     *locktest.FakeClock // only pass and restart advance it
	control   *control.Server
	setup     *setup
	served    chan error
	halt      func()
}

// start runs a server until the test ends. A server that does not stop cleanly fails the test.
func start(t *testing.T, changes ...func(*setup)) *server {
	t.Helper()
	o := setup{
		directories: true,
		rules: []lock.Rule{
			{Match: "/locks/**", MaxAge: 6 * time.Minute, Contention: &lock.Contention{Members: lock.MembersAnyone}},
			{Match: "/gone/**", MaxAge: 6 * time.Minute, OnDisconnect: lock.ReleaseOnDisconnect},
			{Match: "/open/**", MaxAge: 6 * time.Minute, AllowCwd: true},
			{Match: "/ever/**"},
			{Match: "**/*_lock", MaxAge: 6 * time.Minute},
		},
		settings: Settings{
			Accounts: someAccounts(),
			FTP:      config.FTP{Active: true, DataTimeout: config.Duration{Duration: patience}, StatusFile: "/.locks.json"},
			Files:    config.Files{HangUp: config.Duration{Duration: time.Millisecond}},
		},
	}
	for _, change := range changes {
		change(&o)
	}
	s := &server{t: t, root: t.TempDir(), state: t.TempDir(), clock: locktest.NewFakeClock(), memory: locktest.NewMemory()}
	s.run(&o)
	return s
}

// run runs the server on its tree and state.
func (s *server) run(o *setup) {
	s.t.Helper()
	s.setup, s.served = o, make(chan error, 1)
	s.open(o)
	served := Tree(s.tree)
	if o.wrap != nil {
		served = o.wrap(s.tree)
	}
	var events *event.Bus
	if o.events != nil {
		events = event.NewBus(o.events)
		s.t.Cleanup(events.Close)
	}
	s.driver = New(Options{
		Tree: served, Table: s.table, Jobs: s.jobs, Clock: s.clock, HostDirectories: s.disk.HostDirectories,
		Directories: o.directories, TLS: o.tls, SessionReuse: o.sessionReuse, Log: o.log, Settings: o.settings, Events: events,
		Guessing: guessing.New(s.t.Context(), slog.New(slog.DiscardHandler), time.Millisecond),
	})
	s.control = s.driver.Control(o.control)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	listener := s.control.Listen(l, nil)
	go func() { s.served <- s.driver.Serve(listener) }()
	s.halt = sync.OnceFunc(func() { s.stop() })
	s.t.Cleanup(s.halt)
}

// restart stops the server, advances the clock, and starts the server again.
func (s *server) restart(takes time.Duration) {
	s.t.Helper()
	s.halt()
	s.clock.Advance(takes)
	s.run(s.setup)
}

// open opens the tree and the table, and makes the prefixes of the rules, as the program does.
func (s *server) open(o *setup) {
	s.t.Helper()
	must := func(err error) {
		if err != nil {
			s.t.Helper()
			s.t.Fatal(err)
		}
	}
	var err error
	s.tree, err = files.Open(s.root, files.Options{State: filepath.Join(s.state, "uploads"), Epoch: o.epoch})
	must(err)
	must(s.tree.SweepEarlier(s.t.Context()))
	rules, err := lock.NewRules(o.rules)
	must(err)
	for _, p := range append(rules.Prefixes(), "/home/bob/work") {
		must(s.tree.MkdirAll(string(p), 0o755))
	}
	s.disk, err = hostdir.Open(hostdir.Options{
		FS: s.tree, Clock: s.clock, Rules: rules, MakeDirectories: o.directories,
		Held: func(n lock.Name) bool { return s.table.Held(n) || s.table.Valid() != nil },
	})
	must(err)
	s.table, err = lock.NewTable(s.t.Context(), lock.Options{
		Log: s.memory, Disk: s.disk, Clock: s.clock, Rules: rules, Valid: s.valid,
		Observe: func(r *lock.Record) {
			if s.driver != nil {
				s.driver.ObserveEnd(r)
			}
			if s.jobs != nil {
				s.jobs.Observe(r)
			}
		},
	})
	must(err)
	s.jobs = job.New(job.Options{Table: s.table, Clock: s.clock, Rules: job.NewRules(rules, o.jobs)})
}

func (s *server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := s.control.Shutdown(control.Reply{Code: 421, Text: "server stops"})
	for c := range s.control.Conns() {
		c.Kick(control.Reply{Code: 421, Text: "kicked"})
	}
	err = errors.Join(err, s.control.Wait(ctx), <-s.served)
	s.driver.Close()
	s.jobs.Close()
	err = errors.Join(err, s.tree.Close())
	if err != nil {
		s.t.Errorf("the server did not stop cleanly: %v", err)
	}
}

// valid is lock.Options.Valid.
func (s *server) valid() error {
	if f := s.asked.Load(); f != nil {
		(*f)()
	}
	if s.suspended.Load() {
		return &lock.SuspendedError{Reason: "etcd does not answer"}
	}
	return nil
}

// pass advances the clock, and ends the locks that are due.
func (s *server) pass(d time.Duration) {
	s.clock.Advance(d)
	s.table.Expire(context.Background())
}

// until waits until done returns true.
func (s *server) until(what string, done func() bool) { s.t.Helper(); harness.Await(s.t, what, done) }

// somewhere reports whether the stack of a goroutine contains all of the functions.
func somewhere(functions ...string) bool {
	all := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if !slices.ContainsFunc(functions, func(f string) bool { return !strings.Contains(stack, f) }) {
			return true
		}
	}
	return false
}

// moving waits until there are so many transfers with a data connection.
func (s *server) moving(transfers int) {
	s.t.Helper()
	s.until("bytes move", func() bool { return s.driver.CountTransfers() == transfers })
}

// alone returns when all sessions have ended.
func (s *server) alone() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.control.Wait(ctx); err != nil {
		s.t.Fatal("sessions are left")
	}
}

func (s *server) held(n lock.Name) bool {
	_, held := s.table.Get(n)
	return held
}

// write makes a file in the tree, as a program on the host does.
func (s *server) write(name, content string) {
	s.t.Helper()
	file := filepath.Join(s.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) mkdir(name string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Join(s.root, name), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) link(target, name string) {
	s.t.Helper()
	if err := os.Symlink(target, filepath.Join(s.root, name)); err != nil {
		s.t.Fatal(err)
	}
}

// content returns the content of a file on disk, or "(none)".
func (s *server) content(name string) string {
	b, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil {
		return "(none)"
	}
	return string(b)
}

// wantContent checks the content of a file on disk, and that no temporary file lies beside it.
func (s *server) wantContent(name, want string) {
	s.t.Helper()
	if got := s.content(name); got != want {
		s.t.Errorf("%s holds %q, want %q", name, shorten(got), shorten(want))
	}
	if left, _ := filepath.Glob(filepath.Join(s.root, filepath.Dir(name), ".ftplockd-[^l]*")); len(left) > 0 { // except -leftovers
		s.t.Errorf("temporaries are left: %q", left)
	}
}

func shorten(s string) string { return s[:min(len(s), 60)] }

func certificate() *tls.Config {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}
}

// inBothWires runs a test without and with TLS.
func inBothWires(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { t.Helper(); test(t, start(t)) })
	t.Run("TLS", func(t *testing.T) { t.Helper(); test(t, start(t, tlsRequired)) })
}
