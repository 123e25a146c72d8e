package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// cutter is between a client and a server: it ends each data connection after so many bytes, in either direction, as if all had
// come. What is said on the control connection is passed on but for the port of the data connections.
type cutter struct {
	t       testing.TB
	server  string
	after   int64
	address string // where it listens

	hold    chan struct{} // not nil: the connection is not ended, but held up until this is closed
	reached chan struct{} // gets one when a connection is held up

	mu    sync.Mutex
	conns []net.Conn
	ended bool
	all   sync.WaitGroup
}

// startCutter starts one that ends with the test.
func startCutter(t testing.TB, server string, after int64, hold chan struct{}) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{t: t, server: server, after: after, address: l.Addr().String(), hold: hold, reached: make(chan struct{}, 2)}
	c.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.all.Go(func() { c.control(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.mu.Lock()
		c.ended = true
		for _, conn := range c.conns {
			conn.Close()
		}
		c.mu.Unlock()
		c.all.Wait()
	})
	return c
}

// own has a connection closed at the end, or at once if that was before.
func (c *cutter) own(conn net.Conn) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	if c.ended {
		conn.Close()
	}
	return conn
}

var extendedPassive = regexp.MustCompile(`\(\|\|\|(\d+)\|\)`)

func (c *cutter) control(client net.Conn) {
	defer c.own(client).Close()
	server, err := net.Dial("tcp", c.server)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer c.own(server).Close()
	c.all.Go(func() {
		_, _ = io.Copy(server, client)
		server.Close()
	})
	for lines := bufio.NewReader(server); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if m := extendedPassive.FindStringSubmatch(line); m != nil && strings.HasPrefix(line, "229") {
			line = fmt.Sprintf("229 Entering Extended Passive Mode (|||%d|)\r\n", c.data(m[1]))
		}
		if _, err := io.WriteString(client, line); err != nil {
			return
		}
	}
}

// data stands in for a data connection to that port of the server, and returns the port.
func (c *cutter) data(port string) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Error(err)
		return 0
	}
	c.all.Go(func() {
		defer l.Close()
		client, err := l.Accept()
		if err != nil {
			return
		}
		defer c.own(client).Close()
		server, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return
		}
		defer c.own(server).Close()
		pass := func(to, from net.Conn) {
			_, _ = io.CopyN(to, from, c.after)
			if c.hold != nil {
				c.reached <- struct{}{}
				<-c.hold
				_, _ = io.Copy(to, from)
			}
			_ = to.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, from) // the other side is to believe that all was taken
		}
		var both sync.WaitGroup
		both.Go(func() { pass(server, client) })
		both.Go(func() { pass(client, server) })
		both.Wait()
	})
	return l.Addr().(*net.TCPAddr).Port
}

func TestNetlockTransfersUnderTheLock(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	profiles := s.profile("phone_lock")
	dir := t.TempDir()
	local := filepath.Join(dir, "phone.tsv")
	text := strings.Repeat("anna\t1\n", 50000)
	if err := os.WriteFile(local, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := finish(t, locker(t, profiles, "put", "phones", local, "data.tsv")); r.status != 0 || r.out != "" {
		t.Errorf("put: %+v", r)
	}
	if got := s.read("data.tsv"); got != text {
		t.Errorf("%d bytes are there", len(got))
	}
	piped := locker(t, profiles, "put", "phones", "-", "piped.tsv")
	piped.Stdin = strings.NewReader("piped\n")
	if r := finish(t, piped); r.status != 0 || s.read("piped.tsv") != "piped\n" {
		t.Errorf("put from a pipe: %+v, %q", r, s.read("piped.tsv"))
	}
	back := filepath.Join(dir, "back.tsv")
	if r := finish(t, locker(t, profiles, "get", "phones", "data.tsv", back)); r.status != 0 || r.out != "" {
		t.Errorf("get: %+v", r)
	}
	if got, err := os.ReadFile(back); err != nil || string(got) != text {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if r := finish(t, locker(t, profiles, "get", "phones", "piped.tsv", "-")); r.status != 0 || r.out != "piped\n" {
		t.Errorf("get to a pipe: %+v", r)
	}
	r := finish(t, locker(t, profiles, "get", "phones", "none.tsv", back))
	if r.status != 74 || strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, "none.tsv") {
		t.Errorf("a file that is not there: %+v", r)
	}
	s.session("other").want(257, "MKD /phone_lock")
	if r := finish(t, locker(t, profiles, "get", "--try", "phones", "data.tsv", back)); r.status != 75 {
		t.Errorf("while it is held: %+v", r)
	}
}

func TestNetlockGetThatIsCutOffReplacesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	s.write("phone.tsv", strings.Repeat("x", 1<<20))
	c := startCutter(t, s.v4, 300000, nil)
	dir := t.TempDir()
	local := filepath.Join(dir, "phone.tsv")
	if err := os.WriteFile(local, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("ftp://%s:%s@%s/phone_lock", account, password, c.address)
	r := finish(t, locker(t, "", "get", url, "phone.tsv", local))
	if r.status != 74 || strings.Count(r.out, "\n") != 1 {
		t.Errorf("%+v", r)
	}
	if got, err := os.ReadFile(local); err != nil || string(got) != "old" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("left over: %v, %v", all, err)
	}
	s.session("other").wantFree("/phone_lock", 0)
}

func TestNetlockPutThatIsCutOffChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	s.errorsExpected = true
	s.write("phone.tsv", "old")
	c := startCutter(t, s.v4, 300000, nil)
	local := filepath.Join(t.TempDir(), "phone.tsv")
	if err := os.WriteFile(local, []byte(strings.Repeat("x", 1<<20)), 0o644); err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("ftp://%s:%s@%s/phone_lock", account, password, c.address)
	r := finish(t, locker(t, "", "put", url, local, "phone.tsv"))
	if r.status != 74 || strings.Count(r.out, "\n") != 1 {
		t.Errorf("%+v", r)
	}
	if got := s.read("phone.tsv"); got != "old" {
		t.Errorf("%d bytes", len(got))
	}
	s.session("other").wantFree("/phone_lock", 0)
}

func TestNetlockGetWhoseLockIsLostReplacesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	s.write("phone.tsv", strings.Repeat("x", 1<<20))
	hold := make(chan struct{})
	c := startCutter(t, s.v4, 300000, hold)
	local := filepath.Join(t.TempDir(), "phone.tsv")
	if err := os.WriteFile(local, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := launch(t, locker(t, "", "get", fmt.Sprintf("ftp://%s:%s@%s/phone_lock", account, password, c.address), "phone.tsv", local))
	<-c.reached // some of it has come
	if all, err := os.ReadDir(filepath.Dir(local)); err != nil || len(all) != 1 {
		t.Errorf("beside the file there are %v, %v", all, err)
	}
	s.session("boss").breaks("/phone_lock")
	close(hold)
	if got := p.exit(t); got != 79 {
		t.Errorf("exit status %d", got)
	}
	if got, err := os.ReadFile(local); err != nil || string(got) != "old" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestNetlockThatIsInterruptedInATransferChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, longLived)
	s.write("phone.tsv", "old")
	cmd := locker(t, s.profile("phone_lock"), "put", "phones", "-", "phone.tsv")
	p := launch(t, cmd)
	fmt.Fprintln(p.to, "half of it")
	await(t, "the upload begins", func() bool { return len(s.unfinished()) == 1 })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := p.exit(t); got != 128+15 {
		t.Errorf("exit status %d", got)
	}
	s.session("other").wantFree("/phone_lock", 0)
	if got := s.read("phone.tsv"); got != "old" {
		t.Errorf("it is %q", got)
	}
}
