package integration

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
	"golang.org/x/sys/unix"
)

// machines are two network namespaces, joined by a cable: one for the server and its neighbours, one for
// clients that vanish. Nothing of them is seen outside.
type machines struct {
	t              testing.TB
	server, client string // their names
}

var machinesMade atomic.Int32

const (
	serverIP = "198.18.77.1" // of RFC 2544: for tests
	clientIP = "198.18.77.2"
)

// newMachines skips the test where nobody may make namespaces.
func newMachines(t testing.TB) *machines {
	t.Helper()
	harness.Need(t, "ip")
	if os.Geteuid() != 0 {
		harness.Missing(t, "only root may make network namespaces")
	}
	n := fmt.Sprintf("%d-%d", os.Getpid(), machinesMade.Add(1))
	m := &machines{t, "ftplockd-s" + n, "ftplockd-c" + n}
	if out, err := exec.Command("ip", "netns", "add", m.server).CombinedOutput(); err != nil {
		harness.Missing(t, "no network namespaces here: "+string(out))
	}
	t.Cleanup(func() { m.ip("netns", "del", m.server) })
	m.ip("netns", "add", m.client)
	t.Cleanup(func() { m.ip("netns", "del", m.client) })
	m.ip("-n", m.server, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", m.client)
	for _, one := range [][2]string{{m.server, serverIP}, {m.client, clientIP}} {
		m.ip("-n", one[0], "address", "add", one[1]+"/30", "dev", "cable")
		m.ip("-n", one[0], "link", "set", "lo", "up")
		m.ip("-n", one[0], "link", "set", "cable", "up")
	}
	return m
}

func (m *machines) ip(args ...string) {
	m.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		m.t.Fatalf("ip %q: %v\n%s", args, err, out)
	}
}

// start starts a server on its machine. It listens on the cable, too.
func (m *machines) start(config string) (s *server, onCable string) {
	m.t.Helper()
	s = newServer(m.t, config)
	text, err := os.ReadFile(s.config)
	if err == nil {
		onCable = serverIP + ":2121"
		err = os.WriteFile(s.config, []byte(strings.Replace(string(text), "]\nroot", ", \""+onCable+"\"]\nroot", 1)), 0o600)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	s.through = []string{"ip", "netns", "exec", m.server}
	s.start()
	return s, onCable
}

// in does something in a namespace. Sockets that it opens stay there.
func (m *machines) in(namespace string, do func() error) {
	m.t.Helper()
	done := make(chan error)
	go func() { done <- inNamespace(namespace, do) }()
	if err := <-done; err != nil {
		m.t.Fatal(err)
	}
}

// inNamespace is for a goroutine of its own, whose thread ends with it if it cannot go back.
func inNamespace(namespace string, do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer home.Close()
	away, err := os.Open("/run/netns/" + namespace)
	if err != nil {
		return err
	}
	defer away.Close()
	if err := unix.Setns(int(away.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	err = do()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return back
	}
	runtime.UnlockOSThread()
	return err
}

// session logs in from one of the machines.
func (m *machines) session(from, address, name string) *session {
	m.t.Helper()
	var c *session
	m.in(from, func() (err error) {
		// The connection is made on this goroutine's thread, since the address needs no resolver and has one family.
		nc, err := dialHere(address)
		if err != nil {
			return err
		}
		c = &session{&harness.Session{T: m.t, Conn: nc, R: bufio.NewReader(nc)}}
		return nil
	})
	m.t.Cleanup(func() { c.Conn.Close() })
	c.WantReply(220)
	c.Want(331, "USER "+name)
	c.Want(230, "PASS "+password)
	return c
}

// data opens a data connection from one of the machines, after EPSV.
func (m *machines) data(from string, c *session, line string) net.Conn {
	m.t.Helper()
	port, err := c.EPSV()
	if err != nil {
		m.t.Fatal(err)
	}
	var data net.Conn
	m.in(from, func() (err error) {
		data, err = dialHere(net.JoinHostPort(serverIP, fmt.Sprint(port)))
		return err
	})
	m.t.Cleanup(func() { data.Close() })
	c.Want(150, line)
	return data
}

// dialHere connects to an IPv4 address with a socket of the calling thread; net.Dial may use another thread.
func dialHere(address string) (net.Conn, error) {
	to, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), address)
	defer file.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}); err != nil {
		return nil, err
	}
	return net.FileConn(file)
}

// acknowledges has the client's TCP acknowledge at once what it would acknowledge a moment later.
func (s *session) acknowledges() {
	s.T.Helper()
	raw, err := s.Conn.(*net.TCPConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1); err != nil {
				s.T.Error(err)
			}
		})
	}
	if err != nil {
		s.T.Error(err)
	}
}

func TestVanishedMachineIsGivenUpAfterTheUserTimeout(t *testing.T) {
	t.Parallel()
	m := newMachines(t)
	s, onCable := m.start("[ftp]\nuser_timeout = \"4s\"\n" + released + "[[lock]]\nmatch = \"/kept/**\"\nmax_age = \"1h\"\n")
	s.sparse("large", 1<<30)
	near := m.session(m.server, s.v4, "other")

	idle := m.session(m.client, onCable, account)
	idle.Want(257, "MKD /locks/idle")
	idle.Want(257, "MKD /kept/idle")
	idle.acknowledges()
	up := m.session(m.client, onCable, account)
	up.Want(257, "MKD /locks/up")
	into := m.data(m.client, up, "STOR /upload")
	if _, err := into.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	down := m.session(m.client, onCable, account)
	down.Want(257, "MKD /locks/down")
	m.data(m.client, down, "RETR /large") // nobody reads
	deaf := m.session(m.client, onCable, account)
	deaf.Want(257, "PWD")

	// The client's machine still sends, but hears nothing any more: the 257 of this grant never arrives.
	m.ip("-n", m.server, "neighbour", "replace", clientIP, "lladdr", "02:00:00:00:00:99", "dev", "cable", "nud", "permanent")
	deaf.says("MKD /kept/unheard")
	harness.Await(t, "the lock is granted", func() bool {
		return strings.Contains(near.wantEither("SITE LOCK INFO /kept/unheard").Text, "type=lock;")
	})
	// And now it vanishes.
	m.ip("-n", m.client, "link", "set", "cable", "down")
	// The kernel by itself would take a quarter of an hour.
	for _, name := range []string{"/locks/idle", "/locks/up", "/locks/down", "/kept/unheard"} {
		harness.Await(t, name+" comes free", func() bool { return near.wantEither("MKD "+name).Code == 257 })
	}
	near.Want(550, "MKD /kept/idle", "held by "+account+"@"+clientIP) // its 257 was received
	harness.Await(t, "the sessions are over", func() bool { return len(s.sessions(account)) == 0 })
	if left := s.unfinished(); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	if history := s.command("history", "/kept/unheard"); !strings.Contains(history, " undelivered ") {
		t.Errorf("the history of the grant that never arrived:\n%s", history)
	}
}
