package control_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/internal/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for what is expected to happen at once; a test that waits so long has failed.
const patience = 10 * time.Second

// server is ftpserverlib on a Listener, with a tiny driver over a directory.
type server struct {
	t        *testing.T
	listener *control.Server
	addr     string
	fs       afero.Fs
	served   sync.WaitGroup
	handlers chan *handler
	taps     chan *tap // nil: the sockets are left as they are
	tls      *tls.Config
	ports    *control.Ports
	portOpts control.PortOptions

	writeTimeout, ackTimeout time.Duration // 0: as always
	files                    chan *file    // every upload that was closed
	hangUp                   time.Duration // how long an upload waits for the end of its client
	// onFile, if set, is called by a transfer before a file is opened.
	onFile func(name string)
	// onMove, if set, is called by an upload that has got its data connection.
	onMove func()
	// onClose, if set, is called by it before a file is closed.
	onClose func()
}

// serve starts a server; it is stopped and everything checked when the test ends.
func serve(t *testing.T, network string, opts control.Options, change ...func(*server)) *server {
	t.Helper()
	s := newServer(t)
	address := "127.0.0.1:0"
	if network == "tcp6" {
		address = "[::1]:0"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skip(err)
	}
	s.addr = l.Addr().String()
	for _, f := range change {
		f(s)
	}
	if s.taps != nil {
		l = tapListener{l, s.taps}
	}
	s.run(opts, l, nil)
	return s
}

func newServer(t *testing.T) *server {
	return &server{
		t:        t,
		fs:       afero.NewBasePathFs(afero.NewOsFs(), t.TempDir()),
		handlers: make(chan *handler, 2000),
		taps:     make(chan *tap, 2000),
		tls:      certificate(t),
		files:    make(chan *file, 1000),
		hangUp:   10 * time.Millisecond,
	}
}

// plain lets the server have its sockets as they are, and so with all their options.
func plain(s *server) { s.taps = nil }

// portsBetween gives the server a range of passive ports.
func portsBetween(first, last uint16) func(*server) {
	return func(s *server) { s.portOpts.Range = func() (uint16, uint16) { return first, last } }
}

// awaitsData is how long the server waits for a data connection.
func awaitsData(d time.Duration) func(*server) {
	return func(s *server) { s.portOpts.Timeout = func() time.Duration { return d } }
}

func (s *server) run(opts control.Options, l net.Listener, implicit *tls.Config) {
	if s.portOpts.Range == nil {
		s.portOpts.Range = func() (uint16, uint16) { return 0, 0 }
	}
	if s.portOpts.Timeout == nil {
		s.portOpts.Timeout = func() time.Duration { return patience }
	}
	s.ports = control.NewPorts(s.portOpts)
	opts.Ports, opts.TLS, opts.Logger = s.ports, s.tls, slog.New(slog.DiscardHandler)
	if opts.Policy == nil {
		opts.Policy = func() control.Policy { return control.Policy{Active: true} }
	}
	if opts.NewHandler == nil {
		opts.NewHandler = func(c *control.Conn) control.Handler { return newHandler(s, c) }
	}
	s.listener = control.NewServer(opts)
	if s.ackTimeout > 0 || s.writeTimeout > 0 {
		s.listener.SetTimeouts(s.writeTimeout, s.ackTimeout)
	}
	s.t.Cleanup(s.stop)
	s.serve(l, implicit)
}

// serve runs the library on a listener.
func (s *server) serve(l net.Listener, implicit *tls.Config) {
	library := ftpserver.NewFtpServer(driver{s, s.listener.Listen(l, implicit)})
	library.Logger = slog.New(slog.DiscardHandler)
	s.served.Go(func() {
		if err := library.ListenAndServe(); err != nil {
			s.t.Errorf("the library did not take it for a clean stop: %v", err)
		}
	})
}

func (s *server) stop() {
	if err := s.listener.Shutdown(control.Reply{Code: 421, Text: "server stops"}); err != nil {
		s.t.Error(err)
	}
	for c := range s.listener.Conns() {
		c.Kick(control.Reply{Code: 421, Text: "kicked"})
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.listener.Wait(ctx); err != nil {
		s.t.Errorf("connections are left: %v", err)
	}
	s.served.Wait()
	if n := s.ports.Open(); n != 0 {
		s.t.Errorf("%d passive ports are left open", n)
	}
}

// connectionTimeout is how long the library tries to open an active data connection.
const connectionTimeout = time.Second

// driver is the least that ftpserverlib needs.
type driver struct {
	s       *server
	accepts net.Listener
}

var _ ftpserver.MainDriverExtensionPassiveWrapper = driver{}

func (d driver) GetSettings() (*ftpserver.Settings, error) {
	return &ftpserver.Settings{
		Listener:                 d.accepts,
		IdleTimeout:              -1,
		ConnectionTimeout:        int(connectionTimeout / time.Second),
		PassiveTransferPortRange: d.s.ports,
		PasvConnectionsCheck:     ftpserver.IPMatchDisabled,
		ActiveConnectionsCheck:   ftpserver.IPMatchDisabled,
		ActiveTransferPortNon20:  true,
		DisableASCIIConversion:   true,
		EnableHASH:               true,
	}, nil
}
func (driver) ClientConnected(ftpserver.ClientContext) (string, error) { return "ready", nil }
func (driver) ClientDisconnected(ftpserver.ClientContext)              {}
func (d driver) GetTLSConfig() (*tls.Config, error)                    { return d.s.tls, nil }
func (d driver) WrapPassiveListener(l net.Listener) (net.Listener, error) {
	return d.s.ports.Wrap(l)
}

// AuthUser takes every password but two: after "wrong" the library hangs up, after "bad" the client may try again.
func (d driver) AuthUser(cc ftpserver.ClientContext, user, pass string) (ftpserver.ClientDriver, error) {
	c, ok := control.FromAddr(cc.RemoteAddr())
	if !ok {
		return nil, errors.New("no Conn behind the address")
	}
	h := c.Handler().(*handler)
	switch pass {
	case "wrong":
		return nil, errors.New("no")
	case "bad":
		c.Command().Say(control.Reply{Code: 530, Text: "login incorrect"})
		return afero.NewReadOnlyFs(afero.NewMemMapFs()), nil
	}
	h.mu.Lock()
	h.user = user
	h.mu.Unlock()
	c.LogIn(user)
	return &account{Fs: d.s.fs, h: h}, nil
}

// account is the library's ClientDriver.
type account struct {
	afero.Fs
	h *handler
}

var (
	_ ftpserver.ClientDriverExtentionFileTransfer   = (*account)(nil)
	_ ftpserver.ClientDriverExtensionAllocate       = (*account)(nil)
	_ ftpserver.ClientDriverExtensionAvailableSpace = (*account)(nil)
)

func (a *account) AllocateSpace(int) error                 { return nil }
func (a *account) GetAvailableSpace(string) (int64, error) { return 12345, nil }

// handler follows one connection.
type handler struct {
	s    *server
	c    *control.Conn
	over chan control.Reason

	// mkd, if set, does what MKD does.
	mkd func(cmd *control.Command, name string) error
	// onInterrupt, if set, is told of the interruptions of transfers.
	onInterrupt func(control.Interruption)
	idleFor     func() time.Duration

	mu       sync.Mutex
	user     string
	commands []string
	log      []string
	begun    int // Begin without its End
}

func newHandler(s *server, c *control.Conn) *handler {
	h := &handler{s: s, c: c, over: make(chan control.Reason, 10)}
	if s != nil {
		s.handlers <- h
	}
	return h
}

var _ control.Handler = (*handler)(nil)

func (h *handler) Begin(cmd *control.Command) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.s != nil || len(h.commands) < 1000 { // benchmarks run for long
		h.commands = append(h.commands, cmd.Line)
	}
	if h.begun++; h.begun != 1 {
		h.log = append(h.log, "began before the end of another: "+cmd.Line)
	}
}

func (h *handler) End(cmd *control.Command) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun--; h.begun != 0 {
		h.log = append(h.log, "ended without beginning: "+cmd.Line)
	}
}

func (h *handler) Ended(why control.Reason) {
	h.note("ended: " + string(why))
	h.over <- why
}

func (h *handler) IdleFor() time.Duration {
	if h.idleFor == nil {
		return 0
	}
	return h.idleFor()
}

func (h *handler) Status() []string {
	lines := []string{" fine"}
	if cmd := h.c.Command(); cmd != nil && cmd.Transfers() {
		lines = append(lines, " transferring "+cmd.Param)
	}
	return lines
}

func (h *handler) Reset() { h.note("reset") }

func (h *handler) note(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, s)
}

func (h *handler) notes() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.log, "; ")
}

// executed are the lines whose turn has come.
func (h *handler) executed() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.commands, "; ")
}

// wait waits for the end of the connection.
func (h *handler) wait(t *testing.T) control.Reason {
	t.Helper()
	select {
	case why := <-h.over:
		return why
	case <-time.After(patience):
		t.Fatal("the connection did not end")
		return ""
	}
}

func (h *handler) endedWith(t *testing.T, want control.Reason) {
	t.Helper()
	if why := h.wait(t); why != want {
		t.Errorf("the connection ended: %v, want: %v", why, want)
	}
}

// Mkdir is MKD.
func (a *account) Mkdir(name string, mode osFileMode) error {
	if a.h.mkd != nil {
		return a.h.mkd(a.h.c.Command(), name)
	}
	return a.Fs.Mkdir(name, mode)
}

// tap is a server's side of a connection that tells when everything sent was acted on.
type tap struct {
	*net.TCPConn
	mu    sync.Mutex
	cond  *sync.Cond
	got   int
	reads bool

	once   sync.Once
	closed chan struct{}
}

type tapListener struct {
	net.Listener
	taps chan *tap
}

func (l tapListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t := &tap{TCPConn: nc.(*net.TCPConn), closed: make(chan struct{})}
	t.cond = sync.NewCond(&t.mu)
	l.taps <- t
	return t, nil
}

func (t *tap) Close() error {
	err := t.TCPConn.Close()
	t.once.Do(func() { close(t.closed) })
	return err
}

func (t *tap) Read(p []byte) (int, error) {
	t.mark(0, true)
	n, err := t.TCPConn.Read(p)
	t.mark(n, false)
	return n, err
}

func (t *tap) mark(n int, reads bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.got += n
	t.reads = reads
	t.cond.Broadcast()
}

// settled waits until n bytes were read and the next read was begun.
func (t *tap) settled(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.got < n || !t.reads {
		t.cond.Wait()
	}
}

// arrived waits until n bytes were read, whatever Read does then.
func (t *tap) arrived(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.got < n {
		t.cond.Wait()
	}
}

// unacked is how many bytes the client has not acknowledged.
func (t *tap) unacked() (n int) {
	raw, err := t.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	}
	return n
}

// client is the other end of a control connection.
type client struct {
	t    *testing.T
	s    *server
	h    *handler
	tap  *tap
	tcp  *net.TCPConn
	conn net.Conn
	r    *bufio.Reader
	sent int
}

// dial connects and reads the greeting.
func (s *server) dial() *client {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &client{t: s.t, s: s, tcp: nc.(*net.TCPConn), conn: nc, r: bufio.NewReader(nc)}
	s.t.Cleanup(func() { nc.Close() })
	if s.taps != nil {
		c.tap = <-s.taps
	}
	c.expect("220 ready")
	c.h = <-s.handlers
	return c
}

// login logs in.
func (s *server) login() *client {
	s.t.Helper()
	return s.loginAs("u")
}

func (s *server) loginAs(user string) *client {
	s.t.Helper()
	c := s.dial()
	c.play("> USER "+user, "< 331 ", "> PASS p", "< 230 ")
	return c
}

func (c *client) send(raw string) {
	c.t.Helper()
	c.sent += len(raw)
	if _, err := io.WriteString(c.conn, raw); err != nil {
		c.t.Fatal(err)
	}
}

// settled waits until the server has acted on everything that was sent, where the tap can count: in the clear.
func (c *client) settled() {
	if c.conn == net.Conn(c.tcp) {
		c.tap.settled(c.sent)
	}
}

func (c *client) line() (string, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	line, err := c.r.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}

// expect reads a line for each prefix.
func (c *client) expect(prefixes ...string) {
	c.t.Helper()
	for _, prefix := range prefixes {
		line, err := c.line()
		if err != nil {
			c.t.Fatalf("%v instead of %q", err, prefix)
		}
		if !strings.HasPrefix(line, prefix) {
			c.t.Fatalf("got %q, want %q", line, prefix)
		}
	}
}

func (c *client) expectEOF() {
	c.t.Helper()
	if line, err := c.line(); err != io.EOF {
		c.t.Fatalf("got %q, %v instead of the end", line, err)
	}
}

// reply reads one reply, of several lines perhaps, and returns all of them.
func (c *client) reply() []string {
	c.t.Helper()
	first, err := c.line()
	if err != nil {
		c.t.Fatal(err)
	}
	lines := []string{first}
	if len(first) < 4 || first[3] != '-' {
		return lines
	}
	for {
		line, err := c.line()
		if err != nil {
			c.t.Fatalf("%v after %q", err, lines)
		}
		lines = append(lines, line)
		if strings.HasPrefix(line, first[:3]+" ") {
			return lines
		}
	}
}

// say sends a line and returns the reply.
func (c *client) say(line string) []string {
	c.t.Helper()
	c.send(line + "\r\n")
	return c.reply()
}

// play plays a transcript: "> line" is sent with CRLF, ">> raw" as it is (\r and \n
// escaped in the source), "< prefix" is expected.
func (c *client) play(steps ...string) {
	c.t.Helper()
	for _, step := range steps {
		mark, text, _ := strings.Cut(step, " ")
		switch mark {
		case ">":
			c.send(text + "\r\n")
		case ">>":
			c.send(text)
		case "<":
			c.expect(text)
		default:
			c.t.Fatalf("unknown step %q", step)
		}
	}
}

// passive opens a data connection.
func (c *client) passive() *net.TCPConn {
	c.t.Helper()
	return c.dialData(c.epsv())
}

func (c *client) dialData(addr string) *net.TCPConn {
	c.t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { nc.Close() })
	return nc.(*net.TCPConn)
}

func (c *client) epsv() string {
	c.t.Helper()
	line := c.say("EPSV")[0]
	fields := strings.Split(line, "|")
	if !strings.HasPrefix(line, "229 ") || len(fields) != 5 {
		c.t.Fatal(line)
	}
	host, _, _ := net.SplitHostPort(c.s.addr)
	return net.JoinHostPort(host, fields[3])
}

// reset closes the connection with an RST.
func reset(nc *net.TCPConn) {
	_ = nc.SetLinger(0)
	_ = nc.Close()
}

func certificate(t testing.TB) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"x"}}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// startTLS upgrades the client.
func (c *client) startTLS() {
	c.t.Helper()
	t := tls.Client(c.tcp, &tls.Config{InsecureSkipVerify: true})
	_ = c.tcp.SetDeadline(time.Now().Add(patience))
	if err := t.Handshake(); err != nil {
		c.t.Fatal(err)
	}
	c.conn, c.r = t, bufio.NewReader(t)
}

func within(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatal("nothing happened: " + what)
	}
}

func repeat(n int, f func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(f(i))
	}
	return b.String()
}
