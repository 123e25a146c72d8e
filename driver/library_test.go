// These tests fail first when ftpserverlib is upgraded. They check what nobody has written down of v0.32.3 and packages
// control and driver rely on all the same, where its loss would not be seen at once: in which order things happen. They use the
// library alone, with a connection that takes notes, a minimal driver and nothing of this project.

package driver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"
	"github.com/spf13/afero"
)

// notebook keeps what happens, in its order.
type notebook struct {
	mu      sync.Mutex
	entries []string
}

func (n *notebook) note(format string, a ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries = append(n.entries, fmt.Sprintf(format, a...))
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
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		entries := n.all()
		if len(those(entries, prefix)) >= count {
			return entries
		}
		if time.Now().After(end) {
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

// notedConn notes what the library does with a control connection. Its Read returns one line.
type notedConn struct {
	net.Conn
	*notebook
	in *bufio.Reader
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

// notedListener accepts notedConns for the library.
type notedListener struct {
	net.Listener
	*notebook
}

func (l *notedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &notedConn{conn, l.notebook, bufio.NewReader(conn)}, nil
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
	afero.Fs
	t        *testing.T
	listener *notedListener
	handle   func() (*noted, error) // for GetHandle
	ports    chan net.Listener      // that were opened
}

func startLibrary(t *testing.T) *habits {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := new(notebook)
	h := &habits{notebook: n, Fs: afero.NewMemMapFs(), t: t, listener: &notedListener{l, n}, ports: make(chan net.Listener, 10)}
	h.handle = func() (*noted, error) { return &noted{notebook: n}, nil }
	server, served := ftpserver.NewFtpServer(h), make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	t.Cleanup(func() {
		l.Close()
		if err := <-served; err != nil {
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
func (h *habits) ClientDisconnected(ftpserver.ClientContext)              { h.note("disconnected") }
func (h *habits) GetTLSConfig() (*tls.Config, error)                      { return nil, errors.New("none") }

func (h *habits) AuthUser(ftpserver.ClientContext, string, string) (ftpserver.ClientDriver, error) {
	return h, nil
}

func (h *habits) WrapPassiveListener(l net.Listener) (net.Listener, error) {
	h.note("wrap")
	h.ports <- l
	return &notedPort{l, h.notebook}, nil
}

func (h *habits) Mkdir(name string, perm os.FileMode) error {
	h.note("begin MKD %s", name)
	if name == "/panic" {
		panic("a bug")
	}
	time.Sleep(10 * time.Millisecond) // so that a Read that comes too early would be noted
	err := h.Fs.Mkdir(name, perm)
	h.note("end MKD %s", name)
	return err
}

func (h *habits) GetAvailableSpace(string) (int64, error) { return 1, nil }
func (h *habits) AllocateSpace(int) error                 { return nil }
func (h *habits) Site(string) *ftpserver.AnswerCommand    { return &ftpserver.AnswerCommand{Code: 200} }

func (h *habits) GetHandle(string, int, int64) (ftpserver.FileTransfer, error) {
	h.note("handle")
	handle, err := h.handle()
	if err != nil {
		return nil, err
	}
	return handle, nil
}

// noted is a handle that notes what is done with it.
type noted struct {
	*notebook
	moved    func(stream any) error // what ReadFrom and WriteTo do; nil: nothing
	closeErr error
}

func (n *noted) move(stream any) (int64, error) {
	n.note("moves")
	if n.moved == nil {
		return 1, nil
	}
	return 1, n.moved(stream)
}

func (n *noted) ReadFrom(r io.Reader) (int64, error) { return n.move(r) }
func (n *noted) WriteTo(w io.Writer) (int64, error)  { return n.move(w) }
func (n *noted) Read([]byte) (int, error)            { return 0, os.ErrInvalid }
func (n *noted) Write([]byte) (int, error)           { return 0, os.ErrInvalid }
func (n *noted) Seek(at int64, _ int) (int64, error) { return at, nil }
func (n *noted) Close() error                        { n.note("handle closed"); return n.closeErr }

// loggedIn is a client that has logged in.
func (h *habits) loggedIn() *conn {
	h.t.Helper()
	h.t.Cleanup(func() { h.await(h.t, "disconnected", 1) })
	return (&server{t: h.t, addr: h.listener.Addr().String(), setup: &setup{}}).as("a")
}

// plainCommands are executed on the goroutine that reads, each with its reply.
var plainCommands = []string{
	"SYST", "NOOP", "CLNT x", "PWD", "MKD /dir", "MKD /dir", "CWD /dir", "CWD /none", "CDUP", "RMD /none", "DELE /none", "SIZE /dir", "SIZE /none",
	"MDTM /dir", "MFMT 20200101000000 /dir", "MFMT x", "MLST /dir", "MLST /none", "AVBL", "HASH /dir", "HASH /none", "XMD5 /none", "OPTS HASH MD5", "OPTS UTF8 ON",
	"TYPE I", "TYPE A", "MODE S", "STAT /dir", "STAT /none", "ALLO 5", "REST 3", "REST 0", "PASV", "EPSV", "EPRT |1|127.0.0.1|5000|", "PBSZ 0", "PROT C",
	"SITE x", "RNFR /dir", "RNTO /g", "RNTO /h", "RNFR /g", "RNTO /f", "ABOR", "MKD /panic", "NONSENSE", "QUIT",
}

// Control.Conn takes a Read for the end of the command before, and what it is given to Write for whole lines.
func TestLibraryReadsAndWritesByLines(t *testing.T) {
	h := startLibrary(t)
	p := h.loggedIn()
	for _, command := range plainCommands {
		p.ask(command)
	}
	entries := h.await(t, "disconnected", 1)
	final := regexp.MustCompile("(?m)^[2-5][0-9][0-9] ")
	executing, replied := "", false
	for i, e := range entries {
		what, rest, _ := strings.Cut(e, " ")
		switch what {
		case "line":
			executing, replied = rest, false
		case "write":
			replied = replied || final.MatchString(rest)
			lines, most := strings.Count(rest, "\n"), 1
			if strings.HasPrefix(executing, "MLST") {
				most = 2
			}
			if lines < 1 || lines > most || !strings.HasSuffix(rest, "\r\n") || strings.Count(rest, "\r\n") != lines {
				t.Errorf("%s: it writes %q", executing, rest)
			}
		case "read":
			if !replied {
				t.Errorf("it reads before it has replied to %s", executing)
			}
			replied = false
		case "begin":
			if rest == "MKD /dir" && !strings.HasPrefix(entries[i+1], "end MKD /dir") {
				t.Errorf("during MKD: %s", entries[i+1])
			}
		}
	}
	if got, want := len(those(entries, "line")), 2+len(plainCommands); got != want {
		t.Errorf("%d commands, want %d", got, want)
	}
}

// While a transfer runs control looks ahead, so the library must ask for more: also before the data connection has come.
func TestLibraryReadsOnWhileATransferRuns(t *testing.T) {
	for _, command := range []string{"RETR /f", "STOR /f", "APPE /f"} {
		goOn, opened := make(chan struct{}), make(chan struct{})
		h := startLibrary(t)
		h.handle = func() (*noted, error) {
			<-opened
			return &noted{notebook: h.notebook, moved: func(any) error { <-goOn; return nil }}, nil
		}
		p := h.loggedIn()
		p.data()
		reads := len(those(h.await(t, "read", 4), "read"))
		p.send(command + "\r\n")
		h.await(t, "read", reads+1)
		close(opened)
		p.check(command, p.reply(), "150*")
		if len(those(h.all(), "handle closed")) > 0 {
			t.Errorf("%s: it is over", command)
		}
		close(goOn)
		p.check(command, p.reply(), "226*")
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
			good     bool
		}{
			{"it ends well", nil, nil, true},
			{"moving bytes fails", func(any) error { return broken }, nil, false},
			{"it is stalled", func(any) error { return os.ErrDeadlineExceeded }, nil, false},
			{"Close fails", nil, broken, reading},
			{"both fail", func(any) error { return broken }, broken, false},
			{"the handle has closed the connection", func(s any) error { s.(net.Conn).Close(); return net.ErrClosed }, nil, false},
			{"the handle has closed the connection and is content", func(s any) error { s.(net.Conn).Close(); return nil }, nil, true},
		} {
			t.Run(command+", "+tt.name, func(t *testing.T) {
				h := startLibrary(t)
				h.handle = func() (*noted, error) { return &noted{h.notebook, tt.moved, tt.closeErr}, nil }
				p := h.loggedIn()
				p.data()
				p.want(command, "150*")
				if r := p.reply(); strings.HasPrefix(r, "226") != tt.good {
					t.Errorf("it says %s", r)
				}
				p.want("SITE x", "200*")
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

// Control.Ports takes note of a port before the client is told of it, and the driver opens a file before there is a data connection: a
// refusal does not wait for that.
func TestLibraryOpensPortsAndFilesInTime(t *testing.T) {
	h := startLibrary(t)
	p := h.loggedIn()
	p.want("EPSV", "229*")
	p.data()
	p.want("RETR /f", "150*")
	p.check("RETR", p.reply(), "226*")
	if entries := h.all(); !inOrder(entries, "line EPSV", "wrap", "write 229", "line PASV", "wrap", "write 227",
		"line RETR", "handle", "accept", "write 150", "moves", "handle closed", "write 226") {
		t.Errorf("%q", entries)
	}
	h.handle = func() (*noted, error) { return nil, os.ErrPermission }
	p.want("EPSV", "229*")
	p.want("RETR /g", "550*")
	if entries := h.all(); len(those(entries, "accept")) != 1 {
		t.Errorf("%q", entries)
	}
}

// That is how control ends the waiting for a data connection. It takes the 425 for the end of the transfer only when the handle is closed,
// too.
func TestLibraryGivesUpAPortThatIsClosedAndThenClosesTheHandle(t *testing.T) {
	for _, command := range []string{"RETR /f", "STOR /f"} {
		h := startLibrary(t)
		p := h.loggedIn()
		p.want("EPSV", "229*")
		began := time.Now()
		p.send(command + "\r\n")
		h.await(t, "accept", 1)
		(<-h.ports).Close()
		p.check(command, p.reply(), "425*")
		if took := time.Since(began); took > 8*time.Second { // it waits for 10 s
			t.Errorf("%s: it took %v", command, took)
		}
		if entries := h.await(t, "handle closed", 1); !inOrder(entries, "handle", "write 425", "handle closed") || len(those(entries, "moves")) > 0 {
			t.Errorf("%q", entries)
		}
		p.want("NOOP", "200*")
	}
}
