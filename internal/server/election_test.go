package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// fakeEtcd is an etcd with one server, which the test controls. It is both the cluster and the log of the server's term.
type fakeEtcd struct {
	*locktest.Memory
	standing  atomic.Value  // string
	turn      chan struct{} // closed when it is the server's turn
	over      chan error    // gets the end of the term
	suspended atomic.Bool
	leaseOver atomic.Bool
	standbys  atomic.Int32
	settings  atomic.Pointer[map[string]string] // after a reload
	slow      atomic.Bool                       // Load waits for the end of its context
	hung      chan struct{}                     // Load waits until it is closed; nil: it does not wait
	resigned  chan struct{}
	resign    func() // called when the server resigns
}

func newFakeEtcd() *fakeEtcd {
	f := &fakeEtcd{
		Memory: locktest.NewMemory(), turn: make(chan struct{}), over: make(chan error, 1), resigned: make(chan struct{}), resign: func() {},
	}
	f.standing.Store("no server is active")
	f.standbys.Store(2)
	return f
}

func (f *fakeEtcd) open(etcd.Options) cluster { return f }

// History yields nothing.
func (f *fakeEtcd) History(context.Context, lock.Name) iter.Seq2[lock.Entry, error] {
	return func(func(lock.Entry, error) bool) {}
}

func (f *fakeEtcd) Campaign(ctx context.Context) (clusterLog, error) {
	select {
	case <-f.turn:
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fakeEtcd) StandbyState() string { return f.standing.Load().(string) }

func (f *fakeEtcd) Overview(context.Context) (etcd.Overview, error) {
	return etcd.Overview{Term: 6, Standbys: int(f.standbys.Load()), Took: time.Millisecond}, nil
}

func (f *fakeEtcd) LeaseLeft() time.Duration { return 4 * time.Second }

func (f *fakeEtcd) Differing() []string { return nil }

func (f *fakeEtcd) SetSettings(settings map[string]string) { f.settings.Store(&settings) }

func (f *fakeEtcd) Space(context.Context) (etcd.Space, error) { return etcd.Space{}, nil }

func (f *fakeEtcd) Run(ctx context.Context) error {
	select {
	case err := <-f.over:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (f *fakeEtcd) Valid() error {
	if f.suspended.Load() {
		return &lock.SuspendedError{Reason: "etcd does not answer"}
	}
	return nil
}

func (f *fakeEtcd) Load(ctx context.Context) (lock.Loaded, error) {
	if f.hung != nil {
		<-f.hung
	}
	if f.slow.Load() {
		<-ctx.Done()
		return lock.Loaded{}, ctx.Err()
	}
	return f.Memory.Load(ctx)
}

func (f *fakeEtcd) Resign(context.Context) error {
	f.resign()
	close(f.resigned)
	return nil
}

func (f *fakeEtcd) LeaseOver() bool             { return f.leaseOver.Load() }
func (f *fakeEtcd) Serve()                      {}
func (f *fakeEtcd) Ready() error                { return f.Valid() }
func (f *fakeEtcd) Size() int64                 { return 0 }
func (f *fakeEtcd) Generation() uint32          { return 7 }
func (f *fakeEtcd) Sweep(context.Context) error { return nil }
func (f *fakeEtcd) Close() error                { return nil }

// member is one of several servers, in this process.
type member struct {
	*running
	etcd  *fakeEtcd
	port  string
	stop  context.CancelFunc
	ended chan error // gets the result of the server
}

// startMember starts one of several servers, which stands by.
func startMember(t *testing.T, f *fakeEtcd) *member {
	t.Helper()
	m := &member{running: newRunning(t), etcd: f, port: freePort(t)}
	dir := m.dir
	text := "listen = ['" + m.port + "']\nroot = '" + dir + "/files'\nstate = '" + dir + "/state'\n" +
		"[http]\nlisten = '127.0.0.1:0'\n" +
		"[etcd]\nendpoints = ['http://127.0.0.1:1']\nshared_state = '" + dir + "/shared'\n"
	if err := errors.Join(os.WriteFile(m.file, []byte(text), 0o600), os.Mkdir(dir+"/shared", 0o700)); err != nil {
		t.Fatal(err)
	}
	s, err := newServer(t.Context(), Options{ConfigFile: m.file}, m.log, f.open)
	if err != nil {
		t.Fatal(err)
	}
	m.server = s
	ctx, stop := context.WithCancel(context.Background())
	m.stop, m.ended = stop, make(chan error, 1)
	go func() {
		m.ended <- s.wait(ctx, func() {}, nil)
	}()
	t.Cleanup(func() {
		stop()
		select {
		case <-m.ended:
		default:
		}
		goleak.VerifyNone(t)
	})
	return m
}

// Outside loopback a standby answers the alarms of several servers, and the page, after a login.
func TestAStandbyAcceptsLogins(t *testing.T) {
	m := startMember(t, newFakeEtcd())
	from := netip.MustParseAddr("192.0.2.1")
	got, err := m.server.admin.LogIn(t.Context(), "ftp", harness.Password, from)
	if err != nil || got.Name != "ftp" || !got.CanView {
		t.Errorf("the login: %+v, %v", got, err)
	}
	if _, err := m.server.admin.LogIn(t.Context(), "ftp", "wrong", from); !errors.Is(err, config.ErrLogin) {
		t.Errorf("a wrong password: %v", err)
	}
	m.log.AwaitLine(t, "login failed", "remote=192.0.2.1")
	m.stop()
	m.exits(nil)
}

// freePort returns an address without a listener.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// takeOver makes it the server's turn.
func (m *member) takeOver() {
	m.t.Helper()
	close(m.etcd.turn)
	m.log.AwaitLine(m.t, "cluster: active", "term 7")
}

// begin starts an upload that lasts until the end of the test.
func (m *member) begin(s *harness.Session, name string) {
	m.t.Helper()
	data, err := s.Open("STOR " + name)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { data.Close() })
}

// exits waits for the end of the server and compares its error: nil for an orderly end.
func (m *member) exits(want error) {
	m.t.Helper()
	if got := m.ends(); !errors.Is(got, want) {
		m.t.Fatalf("error %v, want %v:\n%s", got, want, m.log)
	}
}

// ends waits for the end of the server and returns its error.
func (m *member) ends() error {
	m.t.Helper()
	select {
	case got := <-m.ended:
		m.ended <- got
		return got
	case <-time.After(harness.Patience):
		m.t.Fatalf("the server does not end:\n%s", m.log)
	}
	return nil
}

func (m *member) get(path string) string {
	m.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + m.sinks.listen.Addr().String() + path)
	if err != nil {
		m.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return response.Status + " " + string(body)
}

func (m *member) want(got string, words ...string) {
	m.t.Helper()
	for _, word := range words {
		if !strings.Contains(got, word) {
			m.t.Errorf("%q lacks %q", got, word)
		}
	}
}

func TestAStandbyAnswersAdministratorsAndTakesOver(t *testing.T) {
	f := newFakeEtcd()
	f.standing.Store("etcd does not answer")
	m := startMember(t, f)
	m.log.AwaitLine(m.t, "cluster: standby", "etcd does not answer")
	m.want(m.get("/readyz"), "503", "standby: etcd does not answer")
	m.want(m.get("/healthz"), "200", "standby: etcd does not answer")
	if conn, err := net.Dial("tcp", m.port); err == nil {
		conn.Close()
		t.Error("a standby accepts connections of clients")
	}
	f.standing.Store("north is active")
	m.log.AwaitLine(m.t, "cluster: standby", "north is active")
	m.want(m.get("/metrics"), `ftplockd_cluster_state{state="standby"} 1`, `ftplockd_cluster_state{state="active"} 0`, "ftplockd_locks_held 0")
	m.want(m.get("/"), "standby: north is active")
	for _, request := range [][]string{{"GET", "/locks"}, {"GET", "/sessions"}, {"POST", "/kick", "id", "1-1"}, {"POST", "/break", "name", "/locks/a", "token", "1"}, {"GET", "/health"}} {
		if _, err := m.ask(request[0], request[1], request[2:]...); err == nil || !strings.Contains(err.Error(), "standby: north is active") {
			t.Errorf("%v: %v", request, err)
		} else if away := new(SuspendedError); errors.As(err, away) != (request[1] != "/health") { // the status of the command is 69
			t.Errorf("%v: %T", request, err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(m.dir, "shared")); len(left) != 0 {
		t.Error("it has written to the shared directory")
	}
	m.configure("[[lock]]\nmatch = '/locks/**'\n[[lock]]\nmatch = '/more/**'\n")
	if done := m.askReload(); !slices.Contains(done.NeedRestart, "etcd.endpoints") {
		t.Errorf("keys that need a restart: %q", done.NeedRestart)
	}
	m.takeOver()
	m.log.AwaitLine(m.t, "cluster: taking over")
	session := m.login()
	session.Want(257, "MKD /locks/a")
	session.Want(257, "MKD /more/b", "locked") // by a rule of the reload
	if body, err := m.ask(http.MethodGet, "/locks"); err != nil || !strings.Contains(body, `"/locks/a"`) {
		t.Errorf("locks: %s, %v", body, err)
	}
	if _, err := m.ask(http.MethodGet, "/health"); err != nil {
		t.Error(err)
	}
	m.want(m.get("/healthz"), "200 OK ok, active\n")
	m.want(m.get("/metrics"), `ftplockd_cluster_state{state="active"} 1`, "ftplockd_locks_held 2",
		"ftplockd_cluster_term 6", "ftplockd_cluster_standbys 2", "ftplockd_cluster_lease_seconds 4", "ftplockd_etcd_read_seconds_count ")
	marks, err := os.ReadDir(filepath.Join(m.dir, "shared/uploads"))
	if err != nil || len(marks) != 1 || filepath.Ext(marks[0].Name()) != ".7" {
		t.Error("its uploads are not marked with the epoch:", marks, err)
	}
	if _, err := os.Stat(filepath.Join(m.dir, "files/locks/a")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a lock has a directory:", err)
	}
	f.suspended.Store(true)
	session.Want(451, "MKD /locks/c", "etcd does not answer")
	m.log.AwaitLine(m.t, "cluster: suspended", "etcd does not answer")
	m.want(m.get("/readyz"), "503", "etcd does not answer")
	m.want(m.get("/healthz"), "200", "suspended since ", ": etcd does not answer")
	f.suspended.Store(false)
	m.log.AwaitLine(m.t, "cluster: resumed")
	session.Want(257, "MKD /locks/c")
}

// While its lease may be over, a server refuses connections and keeps its sessions.
func TestAServerRefusesConnectionsWhileItsLeaseIsOver(t *testing.T) {
	f := newFakeEtcd()
	m := startMember(t, f)
	m.takeOver()
	session := m.login()
	connects := func() bool {
		conn, err := net.Dial("tcp", m.port)
		if err == nil {
			conn.Close()
		}
		return err == nil
	}
	f.suspended.Store(true)
	m.log.AwaitLine(t, "cluster: suspended")
	if !connects() {
		t.Error("connections are refused before the end of the lease")
	}
	f.leaseOver.Store(true)
	harness.Await(t, "connections are refused", func() bool { return !connects() })
	session.Want(451, "MKD /locks/a")
	f.leaseOver.Store(false)
	f.suspended.Store(false)
	harness.Await(t, "connections are accepted", connects)
	session.Want(257, "MKD /locks/a")
	m.login().Want(550, "MKD /locks/a")

	f.leaseOver.Store(true)
	harness.Await(t, "connections are refused", func() bool { return !connects() })
	other, err := net.Listen("tcp", m.port)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	f.leaseOver.Store(false)
	m.exits(etcd.ErrHandOver) // it cannot serve
	<-f.resigned
}

// unreadManager sets a service manager that does not read its notifications.
func unreadManager(t *testing.T) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { manager.Close() })
	sender, err := net.DialUnix("unixgram", nil, manager.LocalAddr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	for err == nil { // until its queue is full
		_ = sender.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, err = sender.Write([]byte("x"))
	}
	t.Setenv("NOTIFY_SOCKET", socket)
}

func TestADeposedServerEndsItsSessionsAndDoesNotResign(t *testing.T) {
	unreadManager(t)
	f := newFakeEtcd()
	m := startMember(t, f)
	m.takeOver()
	uploads, idle := m.login(), m.login()
	m.begin(uploads, "/f")
	f.suspended.Store(true)
	f.over <- etcd.ErrDeposed
	m.exits(etcd.ErrDeposed)
	uploads.WantReply(426)
	for _, s := range []*harness.Session{uploads, idle} {
		s.WantReply(421, "another server takes over")
	}
	select {
	case <-f.resigned:
		t.Error("it has resigned")
	default:
	}
	m.log.AwaitLine(m.t, "cluster: deposed")
	if m.election.setState(active, "late"); m.election.state().name != deposed {
		t.Error("the end of a take-over hides that the server is deposed")
	}
	if entries, err := os.ReadDir(filepath.Join(m.dir, "files")); err != nil || len(entries) != 1 || entries[0].Name() != "locks" {
		t.Error(entries, err)
	}
}

// When the server resigns, nothing of it can change the tree or a lock.
func TestAServerThatHandsOverResignsLast(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(*member)
		result error
	}{
		"by request": {func(m *member) { m.etcd.over <- etcd.ErrHandOver }, etcd.ErrHandOver},
		"SIGTERM":    {func(m *member) { m.stop() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeEtcd()
			m := startMember(t, f)
			m.takeOver()
			session := m.login()
			if c.result != nil { // SIGTERM would wait for it
				m.begin(session, "/f")
			}
			f.resign = func() {
				if l, err := net.Listen("tcp", m.port); err != nil {
					t.Error(err)
				} else {
					l.Close()
				}
				if marks, err := os.ReadDir(filepath.Join(m.dir, "shared/uploads")); err != nil || len(marks) > 0 {
					t.Errorf("marks of uploads are left: %v, %v", marks, err)
				}
				r, err := session.ReadReply()
				if r.Code == 426 { // the upload ends first
					r, err = session.ReadReply()
				}
				if err != nil || r.Code != 421 {
					t.Errorf("a session was not ended: %v, %v", r, err)
				}
				if _, err := os.Stat(filepath.Join(m.dir, "state", controlSocket)); !errors.Is(err, os.ErrNotExist) {
					t.Error("administrators may change locks:", err)
				}
			}
			c.end(m)
			m.exits(c.result)
			select {
			case <-f.resigned:
			default:
				t.Error("it has not resigned")
			}
		})
	}
}

// A standby that could not serve reports the reason, and does not stand by until the fault is over.
func TestAStandbyChecksWhetherItCouldServe(t *testing.T) {
	f := newFakeEtcd()
	m := startMember(t, f)
	m.log.AwaitLine(t, "cluster: standby", "no server is active")
	shared := filepath.Join(m.dir, "shared")
	mark := filepath.Join(shared, prefixMark+"%2Fftplockd%2F")
	listener := func() net.Listener {
		l, err := net.Listen("tcp", m.port)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for name, c := range map[string]struct {
		fault func() (end func() error, err error)
		says  string
	}{
		"its address is in use": {func() (func() error, error) { return listener().Close, nil }, "not ready: listen: "},
		"shared_state is missing": {func() (func() error, error) {
			return func() error { return os.Rename(shared+".away", shared) }, os.Rename(shared, shared+".away")
		}, "not ready: etcd.shared_state: "},
		"the root is missing": {func() (func() error, error) {
			return func() error { return os.Remove(mark) }, os.WriteFile(mark, nil, 0o600)
		}, "not ready: root: "},
	} {
		end, err := c.fault()
		if err != nil {
			t.Fatal(name, err)
		}
		m.election.checkReadiness(t.Context())
		if err := m.election.couldServe(); err == nil {
			t.Errorf("%s: it stands by", name)
		}
		m.want(m.get("/readyz"), "503", c.says)
		harness.Await(t, name+": the page has the reason", func() bool { return strings.Contains(m.get("/"), c.says) })
		m.want(m.get("/metrics"), `ftplockd_cluster_state{state="not ready"} 1`, `ftplockd_cluster_state{state="standby"} 0`)
		if err := end(); err != nil {
			t.Fatal(name, err)
		}
		m.election.checkReadiness(t.Context())
		if err := m.election.couldServe(); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	m.takeOver()
}

func TestAStandbyWithACertificateThatDoesNotLoadIsNotReady(t *testing.T) {
	c := &config.Config{Root: t.TempDir()}
	c.TLS.Mode, c.TLS.Certificate = config.TLSOptional, "/none"
	s := &server{}
	s.logins.Store(c)
	if err := s.checkServable(); err == nil || !strings.Contains(err.Error(), "tls.certificate /none") {
		t.Error(err)
	}
}

func TestAStandbyWhoseFileSystemHangsIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.logins.Store(&config.Config{Root: "/srv/files"})
		answer := make(chan struct{})
		e := &election{server: s, now: clusterState{name: standby}, readiness: &readiness{check: func() error { <-answer; return nil }}}
		e.checkReadiness(t.Context())
		if got := e.state().String(); !strings.HasPrefix(got, "not ready: the file system of root /srv/files") {
			t.Error(got)
		}
		close(answer)
		synctest.Wait()
		if e.checkReadiness(t.Context()); e.couldServe() != nil {
			t.Error(e.couldServe())
		}
	})
}

func TestAServerThatCannotTakeOverResigns(t *testing.T) {
	for name, c := range map[string]struct {
		mounted bool
		before  func(*member) error
		says    []string
	}{
		"its port is in use": {true, func(m *member) error {
			l, err := net.Listen("tcp", m.port)
			m.t.Cleanup(func() { l.Close() })
			return err
		}, []string{"taking over: listen: ", "in use"}},
		"the tree is not mounted": {false, func(m *member) error { return os.Remove(filepath.Join(m.dir, "shared")) }, []string{"etcd.shared_state", "mounted"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeEtcd()
			m := startMember(t, f)
			if err := c.before(m); err != nil {
				t.Fatal(err)
			}
			close(f.turn)
			failed := m.ends()
			<-f.resigned
			m.want(fmt.Sprint(failed), c.says...)
			if _, err := os.Stat(filepath.Join(m.dir, "files")); c.mounted != (err == nil) {
				t.Error("the tree:", err)
			}
		})
	}
}

func TestATakeOverEndsWithTheTermOrTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(*member)
		result error
	}{
		"deposed": {func(m *member) { m.etcd.over <- etcd.ErrDeposed }, etcd.ErrDeposed},
		"SIGTERM": {func(m *member) { m.stop() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeEtcd()
			f.slow.Store(true)
			m := startMember(t, f)
			close(f.turn)
			m.log.AwaitLine(m.t, "cluster: taking over", "term 7")
			m.want(m.get("/healthz"), "200", "taking over")
			if _, err := m.ask(http.MethodPost, "/reload"); err == nil || !strings.Contains(err.Error(), "taking over") {
				t.Errorf("reload: %v", err)
			}
			c.end(m)
			m.exits(c.result)
			<-f.resigned // it did not serve yet, so it resigns
		})
	}
}

// A take-over that hangs ends: the server resigns, and its process ends as after a hand-over.
func TestATakeOverThatHangsResigns(t *testing.T) {
	f := newFakeEtcd()
	f.hung = make(chan struct{})
	m := startMember(t, f)
	m.election.limit = 400 * time.Millisecond
	close(f.turn)
	m.log.AwaitLine(t, "cluster: taking over", "since 20")
	m.exits(etcd.ErrHandOver)
	<-f.resigned
	close(f.hung)
	if conn, err := net.Dial("tcp", m.port); err == nil {
		conn.Close()
		t.Error("it serves after it has resigned")
	}
}

// A server whose files do not answer ends its sessions and hands over.
func TestAServerWhoseFilesHangHandsOver(t *testing.T) {
	f := newFakeEtcd()
	m := startMember(t, f)
	m.election.files, m.election.filesLimit = &readiness{check: func() error { return errNoAnswer }}, 0
	m.takeOver()
	session := m.login()
	m.exits(etcd.ErrHandOver)
	session.WantReply(421, "another server takes over")
	<-f.resigned
	m.log.AwaitLine(t, "cluster: deposed", "does not answer")
}

// A file system that hangs on all machines causes no failover: each standby loses its key before the active server would hand over.
func TestAServerHandsOverOnlyToAServerThatIsReady(t *testing.T) {
	limit := handOverAfter(5 * time.Second)
	for name, c := range map[string]struct {
		hung, keyLasts time.Duration
		handsOver      bool
	}{
		"one machine hangs": {time.Hour, time.Hour, true},
		"all hang":          {time.Hour, limit - time.Second, false},
		"a short hang":      {limit - time.Second, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := &server{log: slog.New(slog.DiscardHandler)}, newFakeEtcd()
				s.logins.Store(&config.Config{})
				began := time.Now()
				check := func() error { time.Sleep(c.hung - time.Since(began)); return nil }
				e := &election{server: s, cluster: f, files: &readiness{check: check}, filesLimit: limit}
				time.AfterFunc(c.keyLasts, func() { f.standbys.Store(0) })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := e.watchFiles(ctx); errors.Is(err, etcd.ErrHandOver) != c.handsOver || time.Since(began) < limit {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				time.Sleep(time.Hour) // until the check has returned
				synctest.Wait()
			})
		})
	}
}

// A check that hangs ends after readyWithin: see TestHangingDiskBlocksOneGoroutineAndNoReply.
func TestAnActiveServerWithoutItsRootIsNotReady(t *testing.T) {
	f := newFakeEtcd()
	m := startMember(t, f)
	m.takeOver()
	m.want(m.get("/readyz"), "200")
	if err := os.Rename(filepath.Join(m.dir, "files"), filepath.Join(m.dir, "away")); err != nil {
		t.Fatal(err)
	}
	m.want(m.get("/readyz"), "503", "root: ")
}

func TestSharedStateIsOnTheFileSystemOfRoot(t *testing.T) {
	c := &config.Config{Root: t.TempDir()}
	c.Etcd.SharedState = t.TempDir()
	if err := checkShared(c); err != nil {
		t.Error(err)
	}
	root, err := os.Stat(c.Root)
	if err != nil {
		t.Fatal(err)
	}
	c.Etcd.SharedState = "/proc"
	if other, err := os.Stat(c.Etcd.SharedState); err != nil || device(other) == device(root) {
		t.Skip("there is no other file system:", err)
	}
	if err := checkShared(c); err == nil || !strings.Contains(err.Error(), "etcd.shared_state: /proc is on another file system than root "+c.Root) {
		t.Errorf("got %v", err)
	}
	c.Root += "/none"
	if err := checkShared(c); err != nil {
		t.Errorf("a root that does not exist yet: %v", err)
	}
}

// A server detects that it could not write to etcd.shared_state, and does not write to it.
func TestAServerWithAReadOnlySharedStateIsNotReady(t *testing.T) {
	c := &config.Config{Root: t.TempDir()}
	c.Etcd.SharedState, c.TLS.Mode = c.Root, config.TLSOff
	if err := os.Chmod(c.Root, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Mkdir(filepath.Join(c.Root, "trial"), 0o700) == nil {
		t.Skip("this user may write to each directory")
	}
	s := &server{}
	s.logins.Store(c)
	for name, check := range map[string]func() error{"a standby": s.checkServable, "the active server": s.checkFiles} {
		if err := check(); err == nil || !strings.Contains(err.Error(), "etcd.shared_state: this server cannot write to "+c.Root) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSharedStateHasServersOfOnePrefix(t *testing.T) {
	c := &config.Config{Root: t.TempDir()}
	c.Etcd.SharedState, c.Etcd.Prefix = t.TempDir(), "/ftplockd/"
	other := *c
	other.Etcd.Prefix = "/ftplock/"
	if err := errors.Join(checkShared(c), checkShared(&other), markShared(c), markShared(c), checkShared(c)); err != nil {
		t.Error(err)
	}
	for _, f := range []func(*config.Config) error{checkShared, markShared} {
		if err := f(&other); err == nil || !strings.Contains(err.Error(), "prefix-%2Fftplockd%2F shows that servers with another etcd.prefix use these files") {
			t.Error(err)
		}
	}
	if err := checkShared(c); err != nil {
		t.Error(err)
	}
}
