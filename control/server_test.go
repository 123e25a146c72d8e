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
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/ftplockd/ftplockd/control"
	"github.com/spf13/afero"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for what is expected to happen at once; a test that waits so long has failed.
const patience = 10 * time.Second

// server is ftpserverlib on a Listener, with a tiny driver over a directory.
type server struct {
	t        *testing.T
	listener *control.Listener
	addr     string
	fs       afero.Fs
	served   chan error
	handlers chan *handler
	taps     chan *tap
	tls      *tls.Config
	files    chan *file // every upload that was closed
	// onFile, if set, is called by a transfer before a file is opened.
	onFile func(name string)
	// onClose, if set, is called by it before a file is closed.
	onClose func()
}

// serve starts a server; it is stopped and everything checked when the test ends.
func serve(t *testing.T, network string, opts control.Options, change ...func(*server)) *server {
	t.Helper()
	s := &server{
		t:        t,
		fs:       afero.NewBasePathFs(afero.NewOsFs(), t.TempDir()),
		served:   make(chan error, 1),
		handlers: make(chan *handler, 2000),
		taps:     make(chan *tap, 2000),
		tls:      certificate(t),
		files:    make(chan *file, 1000),
	}
	address := "127.0.0.1:0"
	if network == "tcp6" {
		address = "[::1]:0"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skip(err)
	}
	s.addr = l.Addr().String()
	if opts.NewHandler == nil {
		opts.NewHandler = func(c *control.Conn) control.Handler { return newHandler(s, c) }
	}
	for _, f := range change {
		f(s)
	}
	if s.taps != nil {
		l = tapListener{l, s.taps}
	}
	s.listener = control.NewListener(opts, control.Source{Listener: l})
	s.run()
	return s
}

// plain lets the server have its sockets as they are, and so with all their options.
func plain(s *server) { s.taps = nil }

func (s *server) run() {
	lib := ftpserver.NewFtpServer(driver{s})
	lib.Logger = slog.New(slog.DiscardHandler)
	go func() { s.served <- lib.ListenAndServe() }()
	s.t.Cleanup(func() {
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
		if err := <-s.served; err != nil {
			s.t.Errorf("the library did not take it for a clean stop: %v", err)
		}
	})
}

// driver is the least that ftpserverlib needs.
type driver struct{ s *server }

func (d driver) GetSettings() (*ftpserver.Settings, error) {
	return &ftpserver.Settings{
		Listener:    d.s.listener,
		IdleTimeout: -1,
		Banner:      "banner",
	}, nil
}
func (driver) ClientConnected(ftpserver.ClientContext) (string, error) { return "ready", nil }
func (driver) ClientDisconnected(ftpserver.ClientContext)              {}
func (d driver) GetTLSConfig() (*tls.Config, error)                    { return d.s.tls, nil }
func (d driver) AuthUser(cc ftpserver.ClientContext, user, pass string) (ftpserver.ClientDriver, error) {
	if pass == "wrong" {
		return nil, errors.New("no")
	}
	if _, ok := control.FromAddr(cc.RemoteAddr()); !ok {
		return nil, errors.New("no Conn behind the address")
	}
	return struct{ afero.Fs }{d.s.fs}, nil
}

// handler answers a few commands itself.
type handler struct {
	s    *server
	c    *control.Conn
	over chan control.Reason

	listener *control.Listener // only in the idle tests

	// mkd, if set, decides about MKD.
	mkd func(c *control.Conn, name string) control.Decision
	// any, if set, decides first.
	any func(c *control.Conn, cmd control.Command) (control.Decision, bool)
	// onUrgent, if set, is called when a command comes during a transfer.
	onUrgent func(verb string)
	// onAbort, if set, is called when ABOR has its turn.
	onAbort func()
	idleFor func() time.Duration

	mu       sync.Mutex
	data     net.Listener // of EPSV
	moving   net.Conn     // the data connection of the transfer under way
	aborted  bool         // it is
	commands []string
	log      []string
}

func newHandler(s *server, c *control.Conn) *handler {
	h := &handler{s: s, c: c, over: make(chan control.Reason, 10)}
	if s != nil {
		s.handlers <- h
	}
	return h
}

var (
	_ control.Handler  = (*handler)(nil)
	_ control.Urgenter = (*handler)(nil)
	_ control.Idler    = (*handler)(nil)
)

func (h *handler) Command(c *control.Conn, cmd control.Command) control.Decision {
	h.mu.Lock()
	h.commands = append(h.commands, cmd.Line)
	h.mu.Unlock()
	if h.any != nil {
		if d, ok := h.any(c, cmd); ok {
			return d
		}
	}
	switch cmd.Verb {
	case "NOOP":
		return control.Answer(control.Reply{Code: 200, Text: "control's NOOP"})
	case "XPWD":
		return control.Answer(control.Reply{Code: 257, Text: `"/" is it`})
	case "MKD":
		if h.mkd != nil {
			return h.mkd(c, cmd.Param)
		}
	case "STAT":
		if cmd.Param == "" {
			return control.Answer(control.Reply{Code: 211, Text: "Status", Lines: []string{" fine"}})
		}
	case "AUTH":
		return control.StartTLS(control.Reply{Code: 234, Text: "go on"}, h.s.tls)
	case "KILL":
		return control.Close(control.Reply{Code: 421, Text: "as you wish"})
	case "VOID":
		return control.Decision{}
	case "ABOR":
		if h.onAbort != nil {
			h.onAbort()
		}
		h.cut()
		return control.Answer(control.Reply{Code: 226, Text: "nothing is transferred"})
	case "EPSV":
		return h.passive(c)
	case "STOR", "RETR":
		return h.begin(cmd)
	}
	return control.Pass(cmd.Line)
}

func (h *handler) Urgent(_ *control.Conn, cmd control.Command) bool {
	if h.onUrgent != nil {
		h.onUrgent(cmd.Verb)
	}
	return cmd.Verb == "STAT" && cmd.Param == ""
}

func (h *handler) Reply(_ *control.Conn, code int, line []byte) ([]byte, bool) {
	switch {
	case code == 215:
		return []byte("215 rewritten\r\nand not split"), false
	case code == 200 && string(line) == "200 Whatever":
		return nil, true
	}
	return nil, false
}

func (h *handler) Ended(_ *control.Conn, why control.Reason) {
	h.cut()
	h.note("ended: " + why.String())
	h.over <- why
}

func (h *handler) IdleFor(*control.Conn) time.Duration {
	if h.idleFor == nil {
		return 0
	}
	return h.idleFor()
}

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

func (h *handler) executed() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.commands, "; ")
}

// endedWith waits for the end of the connection.
func (h *handler) endedWith(t *testing.T, want control.Reason) {
	t.Helper()
	select {
	case why := <-h.over:
		if why != want {
			t.Errorf("the connection ended: %v, want: %v", why, want)
		}
	case <-time.After(patience):
		t.Fatalf("the connection did not end; want: %v", want)
	}
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
	c := s.dial()
	c.play("> USER u", "< 331 ", "> PASS p", "< 230 ")
	return c
}

func (c *client) send(raw string) {
	c.t.Helper()
	c.sent += len(raw)
	if _, err := io.WriteString(c.conn, raw); err != nil {
		c.t.Fatal(err)
	}
}

// settled waits until the server has acted on everything that was sent, in the clear.
func (c *client) settled() { c.tap.settled(c.sent) }

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
	nc, err := net.Dial("tcp", c.epsv())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { nc.Close() })
	return nc.(*net.TCPConn)
}

func (c *client) epsv() string {
	c.t.Helper()
	c.send("EPSV\r\n")
	line, err := c.line()
	if err != nil || !strings.HasPrefix(line, "229 ") {
		c.t.Fatal(line, err)
	}
	fields := strings.Split(line, "|")
	host, _, _ := net.SplitHostPort(c.s.addr)
	if _, err := strconv.Atoi(fields[3]); err != nil {
		c.t.Fatal(line)
	}
	return net.JoinHostPort(host, fields[3])
}

// reset closes the connection with an RST.
func reset(nc *net.TCPConn) {
	_ = nc.SetLinger(0)
	_ = nc.Close()
}

func certificate(t *testing.T) *tls.Config {
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
