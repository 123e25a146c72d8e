package driver

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/guessing"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/hostdir"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for what is expected to happen at once; a test that waits so long has failed.
const patience = time.Minute

// password is that of every account.
const password = "secret"

// testAccounts are who may log in.
type testAccounts map[string]Account

func (a testAccounts) Authenticate(_ context.Context, t Attempt) (Account, error) {
	account, ok := a[t.Name]
	if !ok || t.Password != password {
		return Account{}, ErrLogin
	}
	return account, nil
}

func someAccounts() testAccounts {
	all := testAccounts{}
	for _, a := range []Account{
		{Name: "phoneacc", Read: true, Write: true},
		{Name: "other", Read: true, Write: true},
		{Name: "reader", Read: true},
		{Name: "writer", Write: true},
		{Name: "boss", Read: true, Write: true, Admin: true, Chmod: true},
		{Name: "bob", Read: true, Write: true, Home: "/home/bob", Start: "/work"},
		{Name: "few", Read: true, Write: true, MaxLocks: 1},
	} {
		if a.Home == "" {
			a.Home, a.Start = "/", "/"
		}
		all[a.Name] = a
	}
	return all
}

// setup is what a test may change of its server.
type setup struct {
	directories  bool
	rules        []lock.Rule
	settings     Settings
	control      control.Options
	tls          *tls.Config
	sessionReuse bool
	log          *slog.Logger
	events       func([]event.Event)
	wrap         func(*files.Tree) Tree // what the driver sees in the place of the tree; nil: the tree
	locks        lock.Log               // of the locks, perhaps shared with other servers; nil: one in memory
	epoch        uint32                 // of several servers, which of them this is
}

func plainLocks(s *setup)  { s.directories = false }
func secure(s *setup)      { s.tls = certificate() }
func tlsRequired(s *setup) { s.tls = certificate(); s.settings.TLSRequired = true }

// server is everything that a client meets, on loopback.
type server struct {
	t      *testing.T
	root   string // of the tree, on disk
	state  string
	addr   string
	driver *Server
	table  *lock.Table

	suspended atomic.Bool            // no lock may be changed
	asked     atomic.Pointer[func()] // called whenever it is asked whether that is so
	memory    *locktest.Memory       // the log of the locks, unless the setup has one
	disk      *hostdir.Disk
	tree      *files.Tree
	clock     *locktest.FakeClock // stands still but for pass
	control   *control.Server
	setup     *setup
	served    chan error
	halt      func()
}

// start runs a server until the test ends; then it checks that nothing is left.
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
		settings: Settings{Accounts: someAccounts(), Active: true, DataTimeout: patience, HangUp: time.Millisecond, StatusFile: "/.locks.json"},
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
		Tree: served, Table: s.table, Clock: s.clock, HostDirectories: s.disk.HostDirectories,
		Directories: o.directories, TLS: o.tls, SessionReuse: o.sessionReuse, Log: o.log, Settings: o.settings, Events: events,
	})
	s.driver.guessing = guessing.New(s.t.Context(), slog.New(slog.DiscardHandler), time.Millisecond)
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

// restart ends the server and begins it anew, with the time that it takes.
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
	log := o.locks
	if log == nil {
		log = s.memory
	}
	s.disk, err = hostdir.Open(hostdir.Options{
		FS: s.tree, Clock: s.clock, Rules: rules, Directories: o.directories,
		Held: func(n lock.Name) bool { return s.table.Held(n) || s.table.Valid() != nil },
	})
	must(err)
	s.table, err = lock.NewTable(s.t.Context(), lock.Options{
		Log: log, Disk: s.disk, Clock: s.clock, Rules: rules, Valid: s.valid,
		Observe: func(r *lock.Record) {
			if s.driver != nil {
				s.driver.ObserveEnd(r)
			}
		},
	})
	must(err)
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
	s.disk.Close()
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

// pass lets time go by, and ends the locks whose time is over.
func (s *server) pass(d time.Duration) {
	s.clock.Advance(d)
	s.table.Expire(context.Background())
}

// until waits for what no reply tells.
func (s *server) until(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !done(); {
		if time.Now().After(end) {
			s.t.Fatalf("never: %s", what)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// somewhere reports whether a goroutine is in all of those functions.
func somewhere(functions ...string) bool {
	all := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if !slices.ContainsFunc(functions, func(f string) bool { return !strings.Contains(stack, f) }) {
			return true
		}
	}
	return false
}

// publishing lets c store its first file in a lock, and stops the server where it publishes that, until goOn is called.
func (s *server) publishing(c *conn, file string) (goOn func()) {
	s.t.Helper()
	d := c.data()
	c.want("STOR "+file, "150 *")
	s.driver.layout.Lock()
	d.Write([]byte("x"))
	d.Close()
	s.until("the file is being published", func() bool { return somewhere("placeProtected", "(*RWMutex).RLock") })
	return s.driver.layout.Unlock
}

// alone returns when no session is left: what the end of the last one does is done then.
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

// write puts a file into the tree behind the server's back.
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

// content is what lies on disk; "(none)" if nothing does.
func (s *server) content(name string) string {
	b, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil {
		return "(none)"
	}
	return string(b)
}

// wantContent checks what lies on disk, and that no temporary does.
func (s *server) wantContent(name, want string) {
	s.t.Helper()
	if got := s.content(name); got != want {
		s.t.Errorf("%s holds %q, want %q", name, shorten(got), shorten(want))
	}
	if left, _ := filepath.Glob(filepath.Join(s.root, filepath.Dir(name), ".ftplockd-[^l]*")); len(left) > 0 { // but -leftovers
		s.t.Errorf("temporaries are left: %q", left)
	}
}

func shorten(s string) string { return s[:min(len(s), 60)] }

func certificate() *tls.Config {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	return &tls.Config{Certificates: s.TLS.Certificates}
}

// conn is a client that says what it is told to, byte for byte.
type conn struct {
	t      *testing.T
	server *server
	tcp    *net.TCPConn
	net.Conn
	in      *bufio.Reader
	private bool // data connections under TLS
}

func (s *server) dial() *conn {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &conn{t: s.t, server: s, tcp: nc.(*net.TCPConn), Conn: nc, in: bufio.NewReader(nc)}
	s.t.Cleanup(func() { nc.Close() })
	c.transcript("S: 220 *")
	return c
}

// as is a client that has logged in, under TLS if the server wants that.
func (s *server) as(account string) *conn {
	s.t.Helper()
	c := s.dial()
	if s.setup.settings.TLSRequired {
		c.upgrade()
	}
	c.login(account)
	return c
}

func (c *conn) login(account string) {
	c.t.Helper()
	c.want("USER "+account, "331 *")
	c.want("PASS "+password, "230 *")
}

// upgrade is AUTH TLS, PBSZ and PROT P (RFC 4217).
func (c *conn) upgrade() {
	c.t.Helper()
	c.upgradeWith(&tls.Config{InsecureSkipVerify: true})
}

func (c *conn) upgradeWith(config *tls.Config) {
	c.t.Helper()
	c.want("AUTH TLS", "234 *")
	c.Conn = tls.Client(c.tcp, config)
	c.in = bufio.NewReader(c.Conn)
	c.transcript(`
		C: PBSZ 0
		S: 200 *
		C: PROT P
		S: 200 *`)
	c.private = true
}

func (c *conn) send(lines string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, lines); err != nil {
		c.t.Fatalf("sending %q: %v", lines, err)
	}
}

// line reads one line.
func (c *conn) line() (string, error) {
	c.SetReadDeadline(time.Now().Add(patience))
	l, err := c.in.ReadString('\n')
	switch {
	case err != nil:
	case !strings.HasSuffix(l, "\r\n"):
		err = errors.New("the line does not end in CRLF")
	case c.server.driver != nil && tooLong(l): // the library alone writes what it likes
		c.t.Errorf("a reply of %d bytes: %q", len(l), l)
	}
	return strings.TrimRight(l, "\r\n"), err
}

// tooLong reports whether a reply of one line has more bytes than embedded clients read: a refusal, or a 257 whose path alone
// would fit.
func tooLong(line string) bool {
	const most = 128
	switch {
	case len(line) <= most || line[3] != ' ':
		return false
	case strings.HasPrefix(line, "257 "):
		path := line[:strings.LastIndexByte(line, '"')+1]
		return len(path)+len("\r\n") <= most
	}
	return line[0] == '4' || line[0] == '5'
}

// reply reads a whole reply (RFC 959 section 4.2).
func (c *conn) reply() string {
	c.t.Helper()
	r, err := c.next()
	if err != nil {
		c.t.Fatalf("reading a reply: %q, %v", r, err)
	}
	return r
}

// next is reply for who expects that there is none.
func (c *conn) next() (string, error) {
	all, err := c.line()
	if err == nil && (len(all) < 4 || all[0] < '1' || all[0] > '5' || all[3] != ' ' && all[3] != '-') {
		err = errors.New("that is no reply")
	}
	for l := all; err == nil && !strings.HasPrefix(l, all[:3]+" "); all += "\n" + l {
		l, err = c.line()
	}
	return all, err
}

// ask sends a command and returns its reply.
func (c *conn) ask(command string) string {
	c.t.Helper()
	c.send(command + "\r\n")
	return c.reply()
}

// want sends a command and checks its reply, of one line or the first of several.
func (c *conn) want(command, pattern string) {
	c.t.Helper()
	first, _, _ := strings.Cut(c.ask(command), "\n")
	c.check(command, first, pattern)
}

// breaks has an administrator take the lock away from its holder, whose token the first reply tells.
func (c *conn) breaks(path string) {
	c.t.Helper()
	refused := c.ask("SITE LOCK BREAK " + path)
	_, after, _ := strings.Cut(refused, "token ")
	token, _, ok := strings.Cut(after, " ")
	if !ok || !strings.HasPrefix(refused, "550 ") {
		c.t.Fatalf("SITE LOCK BREAK without a token: %q", refused)
	}
	c.want("SITE LOCK BREAK "+token+" "+path, "200 "+path+" broken")
}

func (c *conn) check(after, got, pattern string) {
	c.t.Helper()
	if !fits(pattern, got) {
		c.t.Errorf("%s\n got: %q\nwant: %q", after, got, pattern)
	}
}

// fits matches a line with a pattern in which * stands for anything and # for a number.
func fits(pattern, line string) bool {
	p := regexp.QuoteMeta(pattern)
	p = strings.NewReplacer(`\*`, `.*`, `#`, `[0-9]+`).Replace(p)
	return regexp.MustCompile(`(?s)^` + p + `$`).MatchString(line)
}

// transcript plays a transcript: what stands behind "C: " is sent, what stands behind "S: " must come, as fits has
// it. \x in a line of the client are bytes.
func (c *conn) transcript(script string) {
	c.t.Helper()
	last := ""
	for l := range strings.Lines(script) {
		l = strings.TrimLeft(strings.TrimRight(l, "\n"), "\t ")
		switch {
		case strings.HasPrefix(l, "C: "):
			last = l
			c.send(bytesOf(l[3:]) + "\r\n")
		case strings.HasPrefix(l, "S: "):
			got, err := c.line()
			if err != nil {
				c.t.Fatalf("%s: %q, %v", last, got, err)
			}
			c.check(last, got, bytesOf(l[3:]))
		case l != "":
			c.t.Fatalf("no line of a transcript: %q", l)
		}
	}
}

// bytesOf reads \xNN.
func bytesOf(s string) string {
	return regexp.MustCompile(`\\x[0-9a-f]{2}`).ReplaceAllStringFunc(s, func(h string) string {
		b, _ := strconv.ParseUint(h[2:], 16, 8)
		return string([]byte{byte(b)})
	})
}

// ended checks that the server has hung up.
func (c *conn) ended() {
	c.t.Helper()
	if l, err := c.line(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("the connection goes on: %q, %v", l, err)
	}
}

// reset ends the connection with an RST.
func (c *conn) reset() {
	c.t.Helper()
	if err := errors.Join(c.tcp.SetLinger(0), c.tcp.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// port says PASV and returns the address for the data connection.
func (c *conn) port() string {
	c.t.Helper()
	r := c.ask("PASV")
	c.check("PASV", r, "227 *(127,0,0,1,#,#)*")
	return fmt.Sprintf("127.0.0.1:%d", toldPort(r))
}

// toldPort reads the port from a reply to PASV (RFC 959) or EPSV (RFC 2428); 0 if there is none.
func toldPort(reply string) int {
	m := regexp.MustCompile(`([0-9]+),([0-9]+)\)|([0-9]+)\|\)`).FindStringSubmatch(reply)
	if m == nil {
		return 0
	}
	high, _ := strconv.Atoi(m[1])
	low, _ := strconv.Atoi(m[2] + m[3])
	return high<<8 | low
}

// data opens a passive data connection, without TLS.
func (c *conn) data() *net.TCPConn {
	c.t.Helper()
	nc, err := net.Dial("tcp", c.port())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return nc.(*net.TCPConn)
}

// secured puts TLS over a data connection if that was agreed.
func (c *conn) secured(nc net.Conn) net.Conn {
	if !c.private {
		return nc
	}
	return tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
}

// upload sends content and returns the final reply: of the 150 if there is no other.
func (c *conn) upload(command, content string) string {
	c.t.Helper()
	nc := c.data()
	first := c.ask(command)
	if !strings.HasPrefix(first, "150 ") {
		return first
	}
	d := c.secured(nc)
	if _, err := io.WriteString(d, content); err != nil {
		c.t.Errorf("sending data: %v", err)
	}
	d.Close()
	return c.reply()
}

// store uploads and expects that to work.
func (c *conn) store(name, content string) {
	c.t.Helper()
	c.check("STOR "+name, c.upload("STOR "+name, content), "226 *")
}

// download returns what came and the final reply.
func (c *conn) download(command string) (content, reply string) {
	c.t.Helper()
	nc := c.data()
	first := c.ask(command)
	if !strings.HasPrefix(first, "150 ") {
		return "", first
	}
	b, err := io.ReadAll(c.secured(nc))
	if err != nil {
		c.t.Errorf("%s: receiving data: %v", command, err)
	}
	nc.Close()
	return string(b), c.reply()
}

// fetch downloads and expects that to work.
func (c *conn) fetch(command string) string {
	c.t.Helper()
	content, reply := c.download(command)
	c.check(command, reply, "226 *")
	return content
}

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logger keeps everything.
func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// inBothWires runs a test in the clear and under TLS.
func inBothWires(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Run("in the clear", func(t *testing.T) { t.Helper(); test(t, start(t)) })
	t.Run("TLS", func(t *testing.T) { t.Helper(); test(t, start(t, tlsRequired)) })
}
