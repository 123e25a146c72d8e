package control_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
)

// freePorts finds ports in a row that nobody listens on.
func freePorts(t *testing.T, n int) (first, last uint16) {
	t.Helper()
	for range 1000 {
		first := 20000 + rand.IntN(10000)
		free := true
		for port := first; port < first+n; port++ {
			l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
			if err != nil {
				free = false
				break
			}
			_ = l.Close()
		}
		if free {
			return uint16(first), uint16(first + n - 1)
		}
	}
	t.Fatal("no ports are free")
	return 0, 0
}

// listening counts the sockets of this process that listen.
func listening(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	for _, e := range fds {
		fd, _ := strconv.Atoi(e.Name())
		if listens, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); err == nil && listens == 1 {
			n++
		}
	}
	return n
}

// pasv says PASV and returns the address that the reply names.
func (c *client) pasv() string {
	c.t.Helper()
	reply := c.say("PASV")[0]
	if !strings.HasPrefix(reply, "227 ") {
		c.t.Fatal(reply)
	}
	return pasvAddr(c.t, reply)
}

func pasvAddr(t *testing.T, reply string) string {
	t.Helper()
	var a, b, c, d, high, low int
	if _, err := fmt.Sscanf(reply[strings.Index(reply, "("):], "(%d,%d,%d,%d,%d,%d)", &a, &b, &c, &d, &high, &low); err != nil {
		t.Fatal(reply, err)
	}
	return fmt.Sprintf("%d.%d.%d.%d:%d", a, b, c, d, high<<8|low)
}

func portOf(addr string) int {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return n
}

// isOpen reports whether somebody listens at the address.
func isOpen(addr string) bool {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = nc.Close()
	return true
}

func (c *client) upload(data *net.TCPConn, name string) {
	c.t.Helper()
	c.play("> STOR "+name, "< 150 ")
	_, _ = io.WriteString(data, name)
	_ = data.Close()
	c.expect("226 ")
	if got, err := afero.ReadFile(c.s.fs, name); err != nil || string(got) != name {
		c.t.Errorf("%q, %v", got, err)
	}
}

func TestAPortBelongsToItsClient(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	for _, open := range []func() string{c.pasv, c.epsv} {
		addr := open()
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		early, err := from.Dial("tcp", addr)
		if err != nil {
			t.Skip(err)
		}
		defer early.Close()
		c.send("STOR x\r\n")
		late, err := from.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer late.Close()
		for _, stranger := range []net.Conn{early, late} {
			_ = stranger.SetReadDeadline(time.Now().Add(patience))
			if n, err := stranger.Read(make([]byte, 1)); n > 0 || err == nil || os.IsTimeout(err) {
				t.Errorf("a stranger's connection: %d, %v", n, err)
			}
		}
		data := c.dialData(addr)
		c.expect("150 ")
		_, _ = io.WriteString(data, "mine")
		_ = data.Close()
		c.expect("226 ")
		if got, _ := afero.ReadFile(s.fs, "x"); string(got) != "mine" {
			t.Errorf("%q", got)
		}
	}
}

// Two clients of one machine have the same address: each transfers what is its own all the same.
func TestPortsAreNotMixedUp(t *testing.T) {
	first, last := freePorts(t, 8)
	s := serve(t, "tcp4", control.Options{}, plain, portsBetween(first, last))
	clients := make([]*client, 4)
	for i := range clients {
		clients[i] = s.login()
	}
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			for round := range 30 {
				addr := c.pasv()
				if n := portOf(addr); n < int(first) || n > int(last) {
					t.Errorf("port %d is not in the range", n)
				}
				c.upload(c.dialData(addr), fmt.Sprintf("client %d, round %d", i, round))
			}
		})
	}
	wg.Wait()
}

func TestARangeOfOnePort(t *testing.T) {
	first, _ := freePorts(t, 1)
	s := serve(t, "tcp4", control.Options{}, portsBetween(first, first))
	c := s.login()
	for i := range 10 {
		c.pasv()
		addr := c.pasv() // the port before does not stand in its way
		if portOf(addr) != int(first) {
			t.Error(addr)
		}
		c.upload(c.dialData(addr), fmt.Sprint("x", i))
	}
	if addr := c.epsv(); portOf(addr) != int(first) {
		t.Error(addr)
	}
}

func TestAllPortsAreInUse(t *testing.T) {
	const n = 3
	first, last := freePorts(t, n)
	for name, free := range map[string]func(c *client){
		"ABOR":     func(c *client) { c.play("> ABOR", "< 226 ") },
		"QUIT":     func(c *client) { c.play("> QUIT", "< 221 "); c.h.wait(c.t) },
		"hang-up":  func(c *client) { _ = c.tcp.Close(); c.h.wait(c.t) },
		"transfer": func(c *client) { c.upload(c.dialData(c.epsv()), "x") },
		"PORT": func(c *client) {
			c.play("> PORT 127,0,0,1,200,1", "< 200 ")
		},
		"kick": func(c *client) { c.h.c.Kick(control.Reply{}); c.h.wait(c.t) },
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{}, portsBetween(first, last))
			seen := map[string]*client{}
			for i := range n {
				c := s.loginAs(fmt.Sprint("user", i))
				addr := c.pasv()
				if seen[addr] != nil {
					t.Fatalf("%s was given twice", addr)
				}
				seen[addr] = c
			}
			late := s.loginAs("late")
			late.play("> PASV", "< 425 no port is free", "> EPSV", "< 425 no port is free", "> STOR x", "< 425 ", "> NOOP", "< 200 ")
			for addr, c := range seen {
				free(c)
				if isOpen(addr) {
					t.Error("the port is open")
				}
				break
			}
			late.upload(late.dialData(late.pasv()), "late")
		})
	}
}

// A port that is open for one session is never offered to another.
func TestFetchNext(t *testing.T) {
	first, last := freePorts(t, 5)
	ports := control.NewPorts(control.PortOptions{Range: func() (uint16, uint16) { return first, last }})
	taken := map[int]bool{}
	for range 5 {
		exposed, listened, ok := ports.FetchNext()
		if !ok || exposed != listened || taken[exposed] || exposed < int(first) || exposed > int(last) {
			t.Fatalf("%d, %d, %v, taken: %v", exposed, listened, ok, taken)
		}
		l, err := net.Listen("tcp", ":"+strconv.Itoa(listened))
		if err != nil {
			t.Fatal(err)
		}
		port, err := ports.Wrap(l)
		if err != nil {
			t.Fatal(err)
		}
		defer port.Close()
		taken[exposed] = true
	}
	if _, _, ok := ports.FetchNext(); ok {
		t.Error("a port that is open was offered")
	}
	if _, err := ports.Wrap(pipes{}); err == nil {
		t.Error("what is no TCP port was taken")
	}
	if exposed, listened, ok := control.NewPorts(control.PortOptions{Range: func() (uint16, uint16) { return 0, 0 }}).FetchNext(); exposed != 0 || listened != 0 || !ok {
		t.Error("without a range the system chooses")
	}
}

func TestTheRangeMayEndAtTheLastPort(t *testing.T) {
	ports := control.NewPorts(control.PortOptions{Range: func() (uint16, uint16) { return 65535, 65535 }})
	if port, _, ok := ports.FetchNext(); port != 65535 || !ok {
		t.Errorf("%d, %v", port, ok)
	}
}

func TestNothingIsLeaked(t *testing.T) {
	for name, tc := range map[string]struct {
		network string
		then    []string
	}{
		"PORT after PASV":     {"tcp4", []string{"> PORT 127,0,0,1,200,1", "< 200 "}},
		"EPRT after PASV":     {"tcp4", []string{"> EPRT |1|127.0.0.1|60000|", "< 200 "}},
		"EPRT after EPSV, v6": {"tcp6", []string{"> EPRT |2|::1|60000|", "< 200 "}},
		"ABOR after PASV":     {"tcp4", []string{"> ABOR", "< 226 "}},
		"QUIT after PASV":     {"tcp4", []string{"> QUIT", "< 221 "}},
		"a failed transfer":   {"tcp4", []string{"> RETR nothing", "< 550 "}},
		"a panic":             {"tcp4", []string{"> RETR panic", "< 451 "}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, tc.network, control.Options{})
			s.onFile = func(name string) {
				if name == "/panic" {
					panic("a bug")
				}
			}
			c := s.login()
			before := listening(t)
			addr := c.epsv()
			if now := listening(t); now != before+1 {
				t.Fatalf("%d sockets listen, %d before", now, before)
			}
			c.play(tc.then...)
			for until := time.Now().Add(time.Second); listening(t) != before && time.Now().Before(until); {
				time.Sleep(time.Millisecond)
			}
			if now := listening(t); now != before || s.ports.Open() != 0 {
				t.Errorf("%d sockets listen, %d before; %d ports", now, before, s.ports.Open())
			}
			if isOpen(addr) {
				t.Error("the port is open")
			}
		})
	}
}

// A transfer without data connection does not wait longer than PortOptions.Timeout.
func TestADataConnectionIsAwaitedForSoLong(t *testing.T) {
	s := serve(t, "tcp4", control.Options{}, awaitsData(50*time.Millisecond))
	c := s.login()
	c.epsv()
	began := time.Now()
	c.play("> STOR x", "< 425 ")
	if took := time.Since(began); took < 50*time.Millisecond || took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	c.play("> STOR x", "< 425 use PASV")
	c.upload(c.passive(), "y")
}

func TestAPortOfAnotherProgramIsPassedOver(t *testing.T) {
	first, last := freePorts(t, 2)
	other, err := net.Listen("tcp", ":"+strconv.Itoa(int(first)))
	if err != nil {
		t.Skip(err)
	}
	defer other.Close()
	s := serve(t, "tcp4", control.Options{}, portsBetween(first, last))
	c := s.login()
	for range 10 {
		if addr := c.pasv(); portOf(addr) != int(last) {
			t.Fatal(addr)
		}
	}
}
