// These tests fail first when ftpserverlib is upgraded. They check what nobody has written down of v0.32.3 and packages
// control and driver rely on all the same: look there for what a changed habit breaks. They use the library alone, with a
// connection that takes notes, a minimal driver and nothing of this project.

package driver_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"
)

// soon is for what is expected to happen at once; a test that waits so long has failed.
const soon = 20 * time.Second

// notebook keeps what happens, in its order.
type notebook struct {
	mu      sync.Mutex
	entries []string
	changed chan struct{} // closed by the next note
}

func (n *notebook) note(format string, a ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries = append(n.entries, fmt.Sprintf(format, a...))
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// all returns what was noted so far.
func (n *notebook) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.entries)
}

// await returns the notes once there are count of them that begin so.
func (n *notebook) await(t *testing.T, prefix string, count int) []string {
	t.Helper()
	limit := time.After(soon)
	for {
		n.mu.Lock()
		entries := slices.Clone(n.entries)
		if n.changed == nil {
			n.changed = make(chan struct{})
		}
		changed := n.changed
		n.mu.Unlock()
		if len(those(entries, prefix)) >= count {
			return entries
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%q was not noted %d times:\n%s", prefix, count, strings.Join(entries, "\n"))
		}
	}
}

// those returns the notes that begin so.
func those(entries []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(entries), func(e string) bool { return !strings.HasPrefix(e, prefix) })
}

// inOrder reports whether the notes have entries that begin with these prefixes, one behind the other.
func inOrder(entries []string, prefixes ...string) bool {
	for _, e := range entries {
		if len(prefixes) > 0 && strings.HasPrefix(e, prefixes[0]) {
			prefixes = prefixes[1:]
		}
	}
	return len(prefixes) == 0
}

// notedAddr is an address that only itself is equal to.
type notedAddr struct {
	net.Addr
	*notebook
}

// notedConn notes what the library does with a control connection. Its Read returns one line.
type notedConn struct {
	net.Conn
	*notebook
	in        *bufio.Reader
	staysOpen bool // Close is noted only
}

func (c *notedConn) Read(p []byte) (int, error) {
	c.note("read")
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	c.note("line %s", strings.TrimSpace(string(line)))
	return copy(p, line), nil
}

func (c *notedConn) Write(p []byte) (int, error) {
	c.note("write %s", p)
	return c.Conn.Write(p)
}

func (c *notedConn) Close() error {
	c.note("close")
	if c.staysOpen {
		return nil
	}
	return c.Conn.Close()
}

func (c *notedConn) RemoteAddr() net.Addr { return notedAddr{c.Conn.RemoteAddr(), c.notebook} }

// notedListener accepts notedConns for the library.
type notedListener struct {
	net.Listener
	*notebook
	staysOpen bool
}

func (l *notedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &notedConn{conn, l.notebook, bufio.NewReaderSize(conn, 64<<10), l.staysOpen}, nil
}

// notedPort is a passive port that notes when it is waited at.
type notedPort struct {
	net.Listener
	*notebook
}

func (p *notedPort) Accept() (net.Conn, error) {
	p.note("accept")
	return p.Listener.Accept()
}

// habits is a server of the library alone, and its driver.
type habits struct {
	*notebook
	t         *testing.T
	listener  *notedListener
	tls       *tls.Config
	refuses   bool                   // AuthUser fails
	handle    func() (*noted, error) // for GetHandle
	asked     chan net.Addr          // RemoteAddr, for AuthUser
	port      *notedPort             // the last one
	portMu    sync.Mutex
	served    chan error
	clientEnd chan struct{}
}

func library(t *testing.T, changes ...func(*habits)) *habits {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure := httptest.NewTLSServer(nil)
	config := &tls.Config{Certificates: secure.TLS.Certificates}
	secure.Close()
	n := new(notebook)
	h := &habits{
		notebook: n, t: t, listener: &notedListener{Listener: l, notebook: n}, tls: config,
		handle: func() (*noted, error) { return &noted{notebook: n}, nil },
		asked:  make(chan net.Addr, 10), served: make(chan error, 1), clientEnd: make(chan struct{}, 10),
	}
	for _, change := range changes {
		change(h)
	}
	server := ftpserver.NewFtpServer(h)
	go func() { h.served <- server.ListenAndServe() }()
	t.Cleanup(func() {
		l.Close()
		if err := <-h.served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return h
}

func (h *habits) GetSettings() (*ftpserver.Settings, error) {
	return &ftpserver.Settings{
		Listener: h.listener, IdleTimeout: -1, ConnectionTimeout: 10,
		PasvConnectionsCheck: ftpserver.IPMatchDisabled, ActiveConnectionsCheck: ftpserver.IPMatchDisabled,
		ActiveTransferPortNon20: true, EnableHASH: true, DisableASCIIConversion: true,
	}, nil
}

func (h *habits) ClientConnected(ftpserver.ClientContext) (string, error) { return "ready", nil }

func (h *habits) ClientDisconnected(ftpserver.ClientContext) {
	h.note("disconnected")
	h.clientEnd <- struct{}{}
}

func (h *habits) AuthUser(cc ftpserver.ClientContext, _, _ string) (ftpserver.ClientDriver, error) {
	h.asked <- cc.RemoteAddr()
	if h.refuses {
		return nil, errors.New("refused")
	}
	return &habitFs{afero.NewMemMapFs(), h}, nil
}

func (h *habits) GetTLSConfig() (*tls.Config, error) { return h.tls, nil }

func (h *habits) WrapPassiveListener(l net.Listener) (net.Listener, error) {
	if nc, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.Addr().(*net.TCPAddr).Port)); err == nil {
		nc.Close()
		if taken, err := l.Accept(); err == nil { // nobody is to meet it
			taken.Close()
		}
		h.note("wrap: it listens")
	} else {
		h.note("wrap: %v", err)
	}
	h.portMu.Lock()
	defer h.portMu.Unlock()
	h.port = &notedPort{l, h.notebook}
	return h.port, nil
}

// habitFs notes what it is called for.
type habitFs struct {
	afero.Fs
	h *habits
}

func (f *habitFs) Mkdir(name string, perm os.FileMode) error {
	f.h.note("begin MKD %s", name)
	if name == "/panic" {
		panic("a bug")
	}
	time.Sleep(10 * time.Millisecond) // so that a Read that comes too early would be noted
	err := f.Fs.Mkdir(name, perm)
	f.h.note("end MKD %s", name)
	return err
}

func (f *habitFs) Remove(name string) error {
	if name == "/lines" {
		return errors.New("one\ntwo\r\nthree")
	}
	return f.Fs.Remove(name)
}

func (f *habitFs) Rename(from, to string) error {
	f.h.note("rename %s to %s", from, to)
	if to == "/refused" {
		return os.ErrPermission
	}
	return f.Fs.Rename(from, to)
}

func (f *habitFs) Stat(name string) (os.FileInfo, error) {
	f.h.note("stat %s", name)
	if !path.IsAbs(name) {
		name = "/dir/" + name
	}
	return f.Fs.Stat(name)
}

func (f *habitFs) ComputeHash(name string, _ ftpserver.HASHAlgo, _, _ int64) (string, error) {
	f.h.note("hash %s", name)
	return "0123", nil
}

func (f *habitFs) GetAvailableSpace(string) (int64, error) { return 1, nil }
func (f *habitFs) AllocateSpace(int) error                 { return nil }
func (f *habitFs) ReadDir(name string) ([]os.FileInfo, error) {
	return afero.ReadDir(f.Fs, name)
}

func (f *habitFs) Site(string) *ftpserver.AnswerCommand {
	return &ftpserver.AnswerCommand{Code: 200, Message: "one\ntwo"}
}

func (f *habitFs) GetHandle(name string, flags int, offset int64) (ftpserver.FileTransfer, error) {
	f.h.note("handle %s at %d", name, offset)
	handle, err := f.h.handle()
	if err != nil {
		return nil, err
	}
	return handle, nil
}

// noted is a handle that notes what is done with it.
type noted struct {
	*notebook
	moved    func(stream any) error // what ReadFrom and WriteTo do; nil: nothing
	empty    bool                   // they say that no byte was moved
	closeErr error
}

func (n *noted) move(what string, stream any) (int64, error) {
	n.note("%s begins", what)
	defer n.note("%s ends", what)
	count := int64(1)
	if n.empty {
		count = 0
	}
	if n.moved == nil {
		return count, nil
	}
	return count, n.moved(stream)
}

func (n *noted) ReadFrom(r io.Reader) (int64, error) { return n.move("ReadFrom", r) }
func (n *noted) WriteTo(w io.Writer) (int64, error)  { return n.move("WriteTo", w) }
func (n *noted) Read([]byte) (int, error)            { n.note("Read of a handle"); return 0, os.ErrInvalid }
func (n *noted) Write(p []byte) (int, error)         { n.note("Write of %d bytes", len(p)); return len(p), nil }
func (n *noted) Seek(at int64, _ int) (int64, error) { n.note("seek %d", at); return at, nil }
func (n *noted) Close() error                        { n.note("handle closed"); return n.closeErr }

// peer is a client.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (h *habits) dial() *peer {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.listener.Addr().String())
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		conn.Close()
		select {
		case <-h.clientEnd:
		case <-time.After(soon):
			h.t.Error("the library does not let go of a client that has gone")
		}
	})
	p := &peer{h.t, conn, bufio.NewReader(conn)}
	p.reply("220")
	return p
}

func (h *habits) loggedIn() *peer {
	h.t.Helper()
	p := h.dial()
	p.says("USER a", "331")
	p.says("PASS b", "230")
	return p
}

// reply reads a reply, which must have that code.
func (p *peer) reply(code string) string {
	p.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(soon))
	var all string
	for {
		line, err := p.in.ReadString('\n')
		if err != nil {
			p.t.Fatalf("%q, %v", all+line, err)
		}
		all += line
		if len(line) > 3 && line[3] == ' ' && line[0] >= '1' && line[0] <= '5' {
			if !strings.HasPrefix(line, code) {
				p.t.Errorf("got %q, want %s", all, code)
			}
			return all
		}
	}
}

func (p *peer) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.conn, line+"\r\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) says(line, code string) string {
	p.t.Helper()
	p.send(line)
	return p.reply(code)
}

// passive says EPSV and connects.
func (p *peer) passive() *net.TCPConn {
	p.t.Helper()
	r := p.says("EPSV", "229")
	number := regexp.MustCompile(`\|\|\|([0-9]+)\|`).FindStringSubmatch(r)
	if number == nil {
		p.t.Fatal(r)
	}
	conn, err := net.Dial("tcp", "127.0.0.1:"+number[1])
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// plainCommands are executed on the goroutine that reads, each with its reply.
var plainCommands = []string{
	"SYST", "NOOP", "CLNT x", "PWD", "MKD /dir", "MKD /dir", "CWD /dir", "CWD /none", "CDUP", "RMD /none", "DELE /none", "DELE /lines", "SIZE /f", "SIZE /none",
	"MDTM /f", "MFMT 20200101000000 /f", "MFMT x", "MLST /f", "MLST /none", "AVBL", "HASH /f", "HASH /none", "XMD5 /f", "OPTS HASH MD5", "OPTS UTF8 ON",
	"TYPE I", "TYPE A", "MODE S", "STAT /f", "STAT /dir", "STAT /none", "ALLO 5", "REST 3", "REST 0", "PASV", "EPSV", "EPRT |1|127.0.0.1|5000|", "PBSZ 0", "PROT C",
	"SITE x", "RNFR /f", "RNTO /g", "RNTO /h", "RNFR /g", "RNTO /f", "ABOR", "MKD /panic", "NONSENSE", "QUIT",
}

// ran plays all plainCommands and returns what was noted.
func ran(t *testing.T) []string {
	h := library(t)
	p := h.loggedIn()
	p.passive().Close()
	p.says("STOR /f", "150")
	p.reply("226")
	for _, command := range plainCommands {
		p.send(command)
		p.reply("")
	}
	return h.await(t, "disconnected", 1)
}

// Control.Conn takes a Read for the end of the command before.
func TestLibraryReadsOnlyWhenItIsDoneWithTheLineBefore(t *testing.T) {
	entries := ran(t)
	if !inOrder(entries, "write 220", "read", "line USER", "write 331", "read", "line PASS", "write 230", "read") {
		t.Errorf("the login: %q", entries)
	}
	executing, replied := "", true
	commands := 0
	for _, e := range entries {
		what, rest, _ := strings.Cut(e, " ")
		switch what {
		case "line":
			executing, replied = rest, strings.HasPrefix(rest, "STOR")
			commands++
		case "write":
			replied = replied || len(rest) > 3 && rest[3] == ' ' && rest[0] >= '2' && rest[0] <= '5'
		case "read":
			if !replied {
				t.Errorf("it reads before it has replied to %s", executing)
			}
		}
	}
	if want := len(plainCommands) + len("UPES"); commands != want { // USER, PASS, EPSV, STOR
		t.Errorf("%d commands, want %d", commands, want)
	}
	for i, e := range entries {
		if strings.HasPrefix(e, "begin MKD /dir") && !strings.HasPrefix(entries[i+1], "end MKD /dir") {
			t.Errorf("during MKD: %s", entries[i+1])
		}
	}
}

// While a transfer runs control looks ahead, so the library must ask for more.
func TestLibraryReadsOnWhileATransferRuns(t *testing.T) {
	for _, command := range []string{"RETR /f", "STOR /f", "APPE /f"} {
		goOn := make(chan struct{})
		h := library(t)
		h.handle = func() (*noted, error) {
			return &noted{notebook: h.notebook, moved: func(any) error { <-goOn; return nil }}, nil
		}
		p := h.loggedIn()
		p.passive()
		reads := len(those(h.await(t, "read", 4), "read"))
		p.says(command, "150")
		entries := h.await(t, "read", reads+1)
		if len(those(entries, "handle closed")) > 0 {
			t.Errorf("%s: it is over", command)
		}
		close(goOn)
		p.reply("226")
	}
	// also before the data connection has come, and while the handle is made
	h := library(t)
	goOn := make(chan struct{})
	h.handle = func() (*noted, error) { <-goOn; return nil, os.ErrPermission }
	p := h.loggedIn()
	p.says("EPSV", "229")
	reads := len(those(h.await(t, "read", 4), "read"))
	p.send("STOR /f")
	h.await(t, "read", reads+1)
	close(goOn)
	p.reply("550")
}

// Control.Conn.Write takes what it is given for whole lines.
func TestLibraryWritesWholeLines(t *testing.T) {
	command := ""
	for _, e := range ran(t) {
		what, rest, _ := strings.Cut(e, " ")
		switch what {
		case "line":
			command = rest
		case "write":
			lines, most := strings.Count(rest, "\n"), 1
			if strings.HasPrefix(command, "MLST") {
				most = 2
			}
			if lines < 1 || lines > most || !strings.HasSuffix(rest, "\r\n") || strings.Count(rest, "\r\n") != lines {
				t.Errorf("%s: it writes %q", command, rest)
			}
		}
	}
}

// A reply of several lines begins with the code and a hyphen and ends with the code and a space, also where a driver's
// text has line ends.
func TestLibraryWritesRepliesOfSeveralLines(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	for command, want := range map[string]string{
		"SITE x":      "200-one\r\n200 two\r\n",
		"DELE /lines": "550-Couldn't delete /lines: one\r\n550-two\r\n550 three\r\n",
	} {
		if got := p.says(command, want[:3]); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// Control ends a transfer with its final reply, and the driver says it in Close.
func TestLibraryRepliesToATransferOnceAndAfterClose(t *testing.T) {
	broken := errors.New("broken")
	for _, command := range []string{"RETR /f", "STOR /f", "APPE /f"} {
		reading := strings.HasPrefix(command, "RETR")
		for _, tt := range []struct {
			name     string
			moved    func(any) error
			closeErr error
			data     func(*net.TCPConn)
			good     bool
		}{
			{"it ends well", nil, nil, nil, true},
			{"moving bytes fails", func(any) error { return broken }, nil, nil, false},
			{"it is stalled", func(any) error { return os.ErrDeadlineExceeded }, nil, nil, false},
			{"Close fails", nil, broken, nil, reading},
			{"both fail", func(any) error { return broken }, broken, nil, false},
			{"the handle has closed the connection", func(s any) error { s.(net.Conn).Close(); return net.ErrClosed }, nil, nil, false},
			{"the handle has closed the connection and is content", func(s any) error { s.(net.Conn).Close(); return nil }, nil, nil, true},
			{"the client resets the connection", func(s any) error {
				_, err := s.(net.Conn).Read(make([]byte, 1))
				return err
			}, nil, func(c *net.TCPConn) { c.SetLinger(0); c.Close() }, false},
		} {
			t.Run(command+", "+tt.name, func(t *testing.T) {
				h := library(t)
				h.handle = func() (*noted, error) {
					return &noted{notebook: h.notebook, moved: tt.moved, closeErr: tt.closeErr}, nil
				}
				p := h.loggedIn()
				data := p.passive()
				p.says(command, "150")
				if tt.data != nil {
					tt.data(data)
				}
				code := p.reply("")
				if good := strings.HasPrefix(code, "226"); good != tt.good {
					t.Errorf("it says %s", code)
				}
				p.says("SITE x", "200")
				entries := h.all()
				from := slices.IndexFunc(entries, func(e string) bool { return strings.HasPrefix(e, "write 150") })
				to := slices.IndexFunc(entries, func(e string) bool { return strings.HasPrefix(e, "write 200") })
				finals := those(entries[from+1:to], "write")
				if len(finals) != 1 || !inOrder(entries[from:to], "handle closed", "write") || len(those(entries, "handle closed")) != 1 {
					t.Errorf("%q", entries[from:to])
				}
			})
		}
	}
}

// Nothing is written to the end of an empty transfer: the handle's Write must take that, and a download has to have done
// its handshake by then.
func TestLibraryWritesNothingAfterAnEmptyTransfer(t *testing.T) {
	h := library(t)
	h.handle = func() (*noted, error) { return &noted{notebook: h.notebook, empty: true}, nil }
	p := h.loggedIn()
	p.passive()
	p.says("STOR /f", "150")
	p.reply("226")
	if entries := h.all(); !inOrder(entries, "ReadFrom ends", "Write of 0 bytes", "handle closed", "write 226") {
		t.Errorf("%q", entries)
	}
	h.handle = func() (*noted, error) {
		return &noted{notebook: h.notebook, empty: true, moved: func(s any) error { return s.(net.Conn).Close() }}, nil
	}
	p.passive()
	p.says("RETR /f", "150")
	p.reply("550") // it has written nothing to a closed connection
}

// Driver.open takes the stream for the socket, or for a TLS connection above it.
func TestLibraryHandsTheDataConnectionToTheHandle(t *testing.T) {
	for _, active := range []bool{false, true} {
		for _, private := range []bool{false, true} {
			for _, command := range []string{"RETR /f", "STOR /f"} {
				t.Run(fmt.Sprintf("%s, active %t, private %t", command, active, private), func(t *testing.T) {
					h := library(t)
					streams := make(chan any, 1)
					goOn := make(chan struct{})
					h.handle = func() (*noted, error) {
						return &noted{notebook: h.notebook, moved: func(s any) error { streams <- s; <-goOn; return nil }}, nil
					}
					p := h.loggedIn()
					if private {
						p.says("PROT P", "200")
					}
					var data net.Conn
					if active {
						l, err := net.Listen("tcp", "127.0.0.1:0")
						if err != nil {
							t.Fatal(err)
						}
						defer l.Close()
						p.says(fmt.Sprintf("EPRT |1|127.0.0.1|%d|", l.Addr().(*net.TCPAddr).Port), "200")
						p.send(command)
						if data, err = l.Accept(); err != nil {
							t.Fatal(err)
						}
						defer data.Close()
						p.reply("150")
					} else {
						data = p.passive()
						p.says(command, "150")
					}
					stream := <-streams
					conn, ok := stream.(net.Conn)
					if !ok {
						t.Fatalf("it is a %T", stream)
					}
					if conn.RemoteAddr().String() != data.LocalAddr().String() {
						t.Errorf("it leads to %v", conn.RemoteAddr())
					}
					secure, ok := stream.(*tls.Conn)
					if ok != private {
						t.Errorf("it is a %T", stream)
					}
					if ok {
						if secure.ConnectionState().HandshakeComplete {
							t.Error("the handshake is done")
						}
						stream = secure.NetConn()
					}
					if _, ok := stream.(syscall.Conn); !ok {
						t.Errorf("there is no socket in a %T", stream)
					}
					if _, ok := stream.(interface{ CloseWrite() error }); !ok {
						t.Errorf("a %T cannot be half-closed", stream)
					}
					// io.Copy prefers the WriteTo of a *net.TCPConn to a handle's ReadFrom, and net hides it then.
					if _, bare := stream.(*net.TCPConn); bare != (private || command == "RETR /f") {
						t.Errorf("it is a %T", stream)
					}
					close(goOn)
					p.reply("226")
				})
			}
		}
	}
}

// What is opened for a transfer is opened first: a 550 comes without waiting for a data connection.
func TestLibraryGetsTheHandleBeforeItAwaitsTheDataConnection(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	p.passive()
	p.says("RETR /f", "150")
	p.reply("226")
	if entries := h.all(); !inOrder(entries, "handle /f at 0", "accept", "write 150", "WriteTo begins", "handle closed", "write 226") {
		t.Errorf("%q", entries)
	}
	h.handle = func() (*noted, error) { return nil, os.ErrPermission }
	p.says("EPSV", "229")
	p.says("RETR /g", "550")
	if entries := h.all(); len(those(entries, "accept")) != 1 {
		t.Errorf("%q", entries)
	}
}

// Control takes the 425 for the end of the transfer only when the handle is closed, too.
func TestLibraryReplies425BeforeItClosesTheHandle(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	for i, prepare := range []func(){
		func() { // the port is closed while it is waited at
			p.says("EPSV", "229")
			go func() {
				h.await(t, "accept", 1)
				h.portMu.Lock()
				defer h.portMu.Unlock()
				h.port.Close()
			}()
		},
		func() { // nobody listens
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			p.says(fmt.Sprintf("EPRT |1|127.0.0.1|%d|", l.Addr().(*net.TCPAddr).Port), "200")
		},
	} {
		before := len(h.all())
		prepare()
		p.says("STOR /f", "425")
		entries := h.await(t, "handle closed", i+1)[before:]
		if !inOrder(entries, "handle /f", "write 425", "handle closed") || len(those(entries, "ReadFrom")) > 0 {
			t.Errorf("%q", entries)
		}
	}
	p.says("NOOP", "200")
}

// Without PASV or PORT it opens the handle all the same, and closes it behind the reply.
func TestLibraryWithoutADataConnection(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	p.says("STOR /f", "550")
	if entries := h.await(t, "handle closed", 1); !inOrder(entries, "handle /f", "write 550", "handle closed") {
		t.Errorf("%q", entries)
	}
}

// Control.Ports takes note of a port before the client is told of it.
func TestLibraryWrapsAPassivePortBeforeItTellsOfIt(t *testing.T) {
	for command, code := range map[string]string{"PASV": "227", "EPSV": "229"} {
		h := library(t)
		p := h.loggedIn()
		p.says(command, code)
		if entries := h.all(); !inOrder(entries, "line "+command, "wrap: it listens", "write "+code) {
			t.Errorf("%q", entries)
		}
	}
}

func TestLibraryAcceptsFromTheWrappedPort(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	p.passive()
	p.says("RETR /f", "150")
	p.reply("226")
	if entries := h.all(); len(those(entries, "accept")) != 1 {
		t.Errorf("%q", entries)
	}
}

// That is how control ends the waiting for a data connection.
func TestLibraryGivesUpAPortThatIsClosed(t *testing.T) {
	for _, private := range []bool{false, true} {
		for _, command := range []string{"RETR /f", "STOR /f"} {
			h := library(t)
			p := h.loggedIn()
			if private {
				p.says("PROT P", "200")
			}
			p.says("EPSV", "229")
			began := time.Now()
			p.send(command)
			h.await(t, "accept", 1)
			h.portMu.Lock()
			h.port.Close()
			h.portMu.Unlock()
			p.reply("425")
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s, private %t: it took %v", command, private, took)
			}
			p.says("NOOP", "200")
		}
	}
}

// The driver finds its session by the address (control.FromAddr).
func TestLibraryHandsOnTheRemoteAddress(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	got, ok := (<-h.asked).(notedAddr)
	if !ok || got.notebook != h.notebook || got.String() != p.conn.LocalAddr().String() {
		t.Errorf("it is %#v", got)
	}
}

// That is why AuthUser does not fail for a wrong password.
func TestLibraryNeverClosesAgainAfterARefusedPassword(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		h := library(t, func(h *habits) { h.refuses, h.listener.staysOpen = refuses, true })
		p := h.dial()
		p.says("USER a", "331")
		if !refuses {
			p.says("PASS b", "230")
		} else {
			p.says("PASS b", "530")
			if entries := h.await(t, "close", 1); len(those(entries, "disconnected")) > 0 {
				t.Errorf("it is over: %q", entries)
			}
		}
		p.says("NOOP", "200") // it reads on
		p.says("QUIT", "221")
		p.conn.Close()
		h.await(t, "disconnected", 1)
		if !refuses {
			h.await(t, "close", 1)
		}
		time.Sleep(20 * time.Millisecond)
		if entries := h.all(); len(those(entries, "close")) != 1 {
			t.Errorf("refuses %t: %q", refuses, entries)
		}
	}
}

// Client.Stat joins it with the current directory.
func TestLibraryHandsStatTheRelativeNameForHash(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	p.passive().Close()
	p.says("MKD /dir", "257")
	p.says("CWD /dir", "250")
	for _, command := range []string{"HASH", "XMD5", "XSHA256"} {
		before := len(h.all())
		p.says(command+" f", "")
		if entries := h.all()[before:]; !inOrder(entries, "line "+command, "stat f", "write") {
			t.Errorf("%q", entries)
		}
	}
	before := len(h.all())
	p.says("SIZE f", "550")
	if entries := h.all()[before:]; !inOrder(entries, "stat /dir/f") {
		t.Errorf("%q", entries)
	}
}

// Control lets RNTO pass once for each RNFR.
func TestLibraryKeepsRnfrWhenRntoFails(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	p.says("MKD /a", "257")
	p.says("RNFR /a", "350")
	p.says("RNTO /refused", "550")
	p.says("RNTO /b", "250")
	p.says("RNTO /c", "503")
	if got := those(h.all(), "rename"); !slices.Equal(got, []string{"rename /a to /refused", "rename /a to /b"}) {
		t.Errorf("%q", got)
	}
}

// GetHandle is asked for every transfer, also without a data connection, so that REST is for one command only.
func TestLibraryForgetsRestWithTheNextHandle(t *testing.T) {
	h := library(t)
	h.handle = func() (*noted, error) { return nil, os.ErrPermission }
	p := h.loggedIn()
	for _, command := range []string{"RETR /f", "STOR /f"} {
		p.says("REST 5", "350")
		p.says("NOOP", "200")
		p.says(command, "550")
		p.says(command, "550")
	}
	if got := those(h.all(), "handle"); !slices.Equal(got, []string{"handle /f at 5", "handle /f at 0", "handle /f at 5", "handle /f at 0"}) {
		t.Errorf("%q", got)
	}
	p.says("REST 5", "350")
	p.says("REST 0", "350")
	p.says("RETR /f", "550")
	if got := those(h.all(), "handle"); got[len(got)-1] != "handle /f at 0" {
		t.Errorf("%q", got)
	}
}

// Control's words for that stand in place of these.
func TestLibraryRecoversFromAPanic(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	if got := p.says("MKD /panic", "500"); !strings.HasPrefix(got, "500 Unhandled internal error") {
		t.Errorf("%q", got)
	}
	h.handle = func() (*noted, error) {
		return &noted{notebook: h.notebook, moved: func(any) error { panic("a bug") }}, nil
	}
	p.passive()
	p.says("STOR /f", "150")
	if got := p.reply("500"); !strings.HasPrefix(got, "500 Unhandled internal error") {
		t.Errorf("%q", got)
	}
	p.says("NOOP", "200")
	if entries := h.all(); len(those(entries, "handle closed")) > 0 {
		t.Errorf("it closes the handle: %q", entries)
	}
}

// Control refuses lines above maxPass: the library drops the connection without a word.
func TestLibraryTakesLinesOf4094Bytes(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	p.says("CWD /"+strings.Repeat("x", 4094-len("CWD /")), "550")
	p.send("CWD /" + strings.Repeat("x", 4096-len("CWD /")))
	if l, err := p.in.ReadString('\n'); err == nil {
		t.Errorf("it says %q", l)
	}
}

// Control tells it of the end by io.EOF.
func TestLibraryClosesOnceAtTheEndOfTheInput(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	p.conn.(*net.TCPConn).CloseWrite()
	entries := h.await(t, "close", 1)
	if !inOrder(entries, "read", "disconnected", "close") {
		t.Errorf("%q", entries)
	}
}

// Control answers ABOR and STAT itself where that matters. Without a transfer ABOR is 226.
func TestLibraryAbortsNothing(t *testing.T) {
	h := library(t)
	p := h.loggedIn()
	p.says("ABOR", "226")
	p.says("EPSV", "229")
	p.says("ABOR", "226")
	p.says("NOOP", "200")
}
