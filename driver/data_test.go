package driver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestATransferWantsADataConnectionOfItsOwn(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/f", "x")
		c := dial("phoneacc")
		for _, command := range []string{"RETR /f", "STOR /f", "APPE /f", "STOU", "LIST", "NLST", "MLSD"} {
			c.want(command, "425 use PASV, EPSV, PORT or EPRT first")
		}
		if got := c.fetch("RETR /f"); got != "x" {
			t.Errorf("RETR: %q", got)
		}
		c.want("RETR /f", "425 *") // RFC 959 section 3.2: each transfer has its own
		c.want("LIST", "425 *")
		if n := s.listeners(); n != 0 {
			t.Errorf("%d passive listeners are left after the transfer", n)
		}
		// A refusal uses it up, too.
		_, r := c.download("RETR /none")
		c.check("RETR", r, "550 /none: no such file or directory")
		s.until("the port is closed after the refusal", func() bool { return s.listeners() == 0 })
		c.want("LIST", "425 *")
		// RFC 3659 section 5: REST is for the command behind it, whatever becomes of that.
		c.want("REST 1", "350 *")
		if got := c.fetch("LIST /f"); !strings.HasPrefix(got, "-rw") {
			t.Errorf("LIST after REST: %q", got)
		}
		if got := c.fetch("RETR /f"); got != "x" {
			t.Errorf("RETR after a REST that LIST has used: %q", got)
		}
		c.want("REST 1", "350 *")
		c.want("RETR /f", "425 *")
		if got := c.fetch("RETR /f"); got != "x" {
			t.Errorf("RETR after a lost REST: %q", got)
		}
	})
}

func TestPasvTwiceForgetsTheFirstPort(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	c := s.as("phoneacc")
	first := c.port()
	if got := c.fetch("RETR /f"); got != "x" {
		t.Errorf("RETR: %q", got)
	}
	c.port()
	c.port()
	if n := s.listeners(); n != 1 {
		t.Errorf("%d passive listeners", n)
	}
	if nc, err := net.Dial("tcp", first); err == nil {
		t.Error("the first port is open still")
		nc.Close()
	}
	port := activeListener(t, "127.0.0.1:0")
	c.want("PORT 127,0,0,1,"+bytesOfPort(port), "200 *")
	c.want("NOOP", "200 *")
	if n := s.listeners(); n != 0 {
		t.Errorf("%d passive listeners after PORT", n)
	}
	c.port()
	c.want("NOOP", "200 *")
	if n := s.listeners(); n != 1 {
		t.Errorf("%d passive listeners", n)
	}
	c.tcp.Close()
	s.alone()
}

func TestAPortThatNobodyUsesIsClosedWithTheSession(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	c.port()
	c.Close()
	s.alone()
	if n := s.listeners(); n != 0 {
		t.Errorf("%d passive listeners", n)
	}
}

func TestADataConnectionThatNobodyOpens(t *testing.T) {
	t.Parallel()
	s := start(t, func(o *setup) { o.settings.DataTimeout = time.Second })
	s.write("/f", "old")
	c := s.as("phoneacc")
	c.port()
	c.play(`
		C: STOR /f
		S: 425 cannot open the data connection
		C: NOOP
		S: 200 OK`)
	s.wantContent("/f", "old")
	c.store("/f", "x")
	for timeout, want := range map[time.Duration]time.Duration{0: longestWait, time.Second: time.Second, time.Hour: longestWait} {
		var o Server
		o.SetSettings(Settings{DataTimeout: timeout})
		if got := o.connectWithin(); got != want {
			t.Errorf("%v: %v", timeout, got)
		}
	}
}

// Who guesses the port cannot fill it up.
func TestStrangersDoNotKeepTheClientOut(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	c := s.as("phoneacc")
	port := c.port()
	for i := range 60 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i))}, Timeout: patience}
		nc, err := d.Dial("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		nc.Close()
	}
	nc, err := net.DialTimeout("tcp", port, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c.want("RETR /f", "150 *")
	if got, err := io.ReadAll(nc); string(got) != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	c.check("RETR", c.reply(), "226 *")
}

func TestAClientThatLeavesWhileItsDataConnectionIsAwaited(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	began := time.Now()
	for _, leave := range []func(c *conn){func(c *conn) { c.tcp.Close() }, func(c *conn) { c.reset() }} {
		c := s.as("phoneacc")
		c.want("MKD /gone/a", "257 *")
		c.port()
		c.send("STOR /f\r\n")
		leave(c)
		s.alone()
		if s.held("/gone/a") {
			t.Error("the lock is held still")
		}
		s.wantContent("/f", "old")
	}
	if d := time.Since(began); d > s.driver.connectWithin()/2 {
		t.Errorf("that took %v", d)
	}
}

func TestIPv6(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	c := s.dial6()
	c.login("phoneacc")
	c.play(`
		C: PASV
		S: 425 PASV knows IPv4 only: use EPSV
		C: EPSV 1
		S: 522 use the family of the control connection (2)
		C: EPSV 3
		S: 522 *`)
	if n := s.listeners(); n != 0 {
		t.Errorf("%d passive listeners after a PASV that was refused", n)
	}
	if got := c.fetch("RETR /f"); got != "x" {
		t.Errorf("RETR over EPSV: %q", got)
	}
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, host := range []string{"::1", "::"} { // lftp says the latter
		c.want(fmt.Sprintf("EPRT |2|%s|%d|", host, l.Addr().(*net.TCPAddr).Port), "200 *")
		c.active(l, "RETR /f", "x")
	}
}

// RFC 2428 section 4.
func TestEpsvAll(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	c.play(`
		C: EPSV 2
		S: 522 use the family of the control connection (1)
		C: EPSV ALL
		S: 200 *
		C: PASV
		S: 501 after EPSV ALL there is EPSV only
		C: PORT 127,0,0,1,200,1
		S: 501 *
		C: EPRT |1|127.0.0.1|51201|
		S: 501 *
		C: EPSV
		S: 229 *`)
}

func activeListener(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func bytesOfPort(l net.Listener) string {
	p := l.Addr().(*net.TCPAddr).Port
	return fmt.Sprintf("%d,%d", p>>8, p&255)
}

// active does a download over a connection that the server opens.
func (c *conn) active(l net.Listener, command, want string) {
	c.t.Helper()
	c.want(command, "150 *")
	nc, err := l.Accept()
	if err != nil {
		c.t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(c.secured(nc)); string(got) != want || err != nil {
		c.t.Errorf("%s: %q, %v", command, got, err)
	}
	c.check(command, c.reply(), "226 *")
}

func TestActiveDataConnections(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/f", "x")
		c := dial("phoneacc")
		l := activeListener(t, "127.0.0.1:0")
		c.want("PORT 127,0,0,1,"+bytesOfPort(l), "200 *")
		c.active(l, "RETR /f", "x")
		c.want(fmt.Sprintf("EPRT |1|127.0.0.1|%d|", l.Addr().(*net.TCPAddr).Port), "200 *")
		c.active(l, "RETR /f", "x")
		c.want(fmt.Sprintf("EPRT !1!127.0.0.1!%d!", l.Addr().(*net.TCPAddr).Port), "200 *")
		c.active(l, "RETR /f", "x")
		c.play(`
			C: PORT 127,0,0,2,200,1
			S: 501 data connections go to the address that the control connection comes from
			C: PORT 10,0,0,1,200,1
			S: 501 data connections go *
			C: EPRT |1|10.0.0.1|51201|
			S: 501 data connections go *
			C: PORT 127,0,0,1,3,255
			S: 501 ports below 1024 *
			C: EPRT |1|127.0.0.1|22|
			S: 501 ports below 1024 *
			C: EPRT |3|x|51201|
			S: 522 use (1,2)
			C: EPRT |2|127.0.0.1|51201|
			S: 501 *
			C: EPRT |1|::1|51201|
			S: 501 *
			C: EPRT |1|127.0.0.1|65536|
			S: 501 *
			C: EPRT |1|127.0.0.1|
			S: 501 *
			C: EPRT \x09
			S: 501 *
			C: EPRT
			S: 501 *
			C: PORT 127,0,0
			S: 501 PORT wants h1,h2,h3,h4,p1,p2
			C: PORT 127,0,0,1,200,1,0
			S: 501 PORT wants h1,h2,h3,h4,p1,p2
			C: PORT 127,0,0,1,256,1
			S: 501 *
			C: PORT 127,0,0,1,-1,1
			S: 501 *
			C: PORT \x09
			S: 501 *
			C: RETR /f
			S: 425 *`)
		l.Close()
		c.want("PORT 127,0,0,1,"+bytesOfPort(l), "200 *")
		c.want("RETR /f", "425 cannot open the data connection")
	})
}

func TestActiveConnectionsComeFromTheAddressThatTheClientKnows(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	c := s.as("phoneacc")
	l := activeListener(t, "127.0.0.1:0")
	c.want("PORT 127,0,0,1,"+bytesOfPort(l), "200 *")
	c.active(l, "RETR /f", "x")
	c.want("EPRT |1|127.0.0.1|"+strconv.Itoa(l.Addr().(*net.TCPAddr).Port)+"|", "200 *")
	c.want("STOR /g", "150 *")
	from, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := address(from.RemoteAddr()), address(c.tcp.RemoteAddr()); got != want {
		t.Errorf("the server connects from %s, the client knows it as %s", got, want)
	}
	c.want("ABOR", "426 *")
	c.check("ABOR", c.reply(), "226 *")
	if _, err := from.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open after ABOR")
	}
	from.Close()
}

// crowdedPort returns a port to which connections are not made, nor refused: those that wait to be accepted are too many.
func crowdedPort(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := name.(*unix.SockaddrInet4).Port
	for {
		nc, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), 50*time.Millisecond)
		if err != nil {
			return port
		}
		t.Cleanup(func() { nc.Close() })
	}
}

// The client's port is there, but nobody takes the connection.
func TestAnActiveConnectionThatIsNotMadeIsGivenUp(t *testing.T) {
	for name, end := range map[string]func(c *conn){
		"by the client's ABOR": func(c *conn) { c.want("ABOR", "42*"); c.check("ABOR", c.reply(), "22*") },
		"with the client":      func(c *conn) { c.reset() },
	} {
		t.Run(name, func(t *testing.T) {
			// The library cannot be told to give up a connect: it does so after its ConnectionTimeout.
			s := start(t, func(o *setup) { o.settings.DataTimeout = time.Second })
			c := s.as("phoneacc")
			c.want("EPRT |1|127.0.0.1|"+strconv.Itoa(crowdedPort(t))+"|", "200 *")
			c.send("STOR /f\r\n")
			s.until("the server connects", func() bool { return somewhere("(*activeTransferHandler).Open") })
			began := time.Now()
			end(c)
			c.tcp.Close()
			s.alone()
			if d := time.Since(began); d > patience/2 {
				t.Errorf("that took %v", d)
			}
			s.wantContent("/f", "(none)")
		})
	}
}

func TestActiveDataConnectionsCanBeOff(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.Active = false })
	s.as("phoneacc").play(`
		C: PORT 127,0,0,1,200,1
		S: 502 active data connections are off: use PASV or EPSV
		C: EPRT |1|127.0.0.1|51201|
		S: 502 *
		C: RETR /f
		S: 425 *`)
}

// The data connection comes from the client's own machine, or somebody else would get the file.
func TestSomebodyElsesDataConnectionIsCut(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	c := s.as("phoneacc")
	to := c.port()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	stranger, err := d.Dial("tcp", to)
	if err != nil {
		t.Skip("no other loopback address:", err)
	}
	defer stranger.Close()
	c.send("RETR /f\r\n")
	stranger.SetDeadline(time.Now().Add(patience))
	if got, err := io.ReadAll(stranger); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the stranger got %q, %v", got, err)
	}
	nc, err := net.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c.play("S: 150 *")
	if got, _ := io.ReadAll(nc); string(got) != "x" {
		t.Errorf("the client got %q", got)
	}
	c.play("S: 226 *")
}

func TestPassivePorts(t *testing.T) {
	l := activeListener(t, "127.0.0.1:0") // its port is taken
	taken := uint16(l.Addr().(*net.TCPAddr).Port)
	s := start(t, func(o *setup) { o.settings.FirstPort, o.settings.LastPort = taken, taken })
	c := s.as("phoneacc")
	c.play(`
		C: PASV
		S: 425 no port is free for a data connection
		C: EPSV
		S: 425 no port is free for a data connection
		C: LIST
		S: 425 *`)
	settings := *s.driver.settings.Load()
	settings.FirstPort, settings.LastPort = 0, 0
	s.driver.SetSettings(settings)
	c.fetch("LIST")
}

// freePorts returns the first of n ports that are free, one behind the other, where the kernel takes none from.
func freePorts(t *testing.T, n int) uint16 {
	t.Helper()
search:
	for range 100 {
		first := 10_000 + rand.IntN(20_000)
		for port := first; port < first+n; port++ {
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				continue search
			}
			l.Close()
		}
		return uint16(first)
	}
	t.Fatal("no ports are free")
	return 0
}

// Nobody is told of a port that another session waits at.
func TestEachSessionHasAPassivePortOfItsOwn(t *testing.T) {
	first := freePorts(t, 3)
	s := start(t, func(o *setup) { o.settings.FirstPort, o.settings.LastPort = first, first+2 })
	var got []int
	for _, account := range []string{"phoneacc", "other", "boss"} {
		c := s.as(account)
		_, port, err := net.SplitHostPort(c.port())
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(port)
		got = append(got, n)
	}
	slices.Sort(got)
	if want := []int{int(first), int(first) + 1, int(first) + 2}; !slices.Equal(got, want) {
		t.Errorf("ports %v", got)
	}
	s.as("writer").want("EPSV", "425 no port is free for a data connection")
}

// Behind a NAT clients are told the address outside; those on the server's own machine never are.
func TestThePublicAddressIsNotForLoopback(t *testing.T) {
	s := start(t, func(o *setup) {
		o.settings.PublicAddress = func() netip.Addr { return netip.MustParseAddr("192.0.2.1") }
	})
	s.as("phoneacc").want("PASV", "227 *(127,0,0,1,#,#)*")
}

// Neither the client's data nor its locks outlive a session that took no leave.
func TestTheEndOfTheControlConnectionCutsTheDataConnection(t *testing.T) {
	for _, mode := range []string{"PASV", "PORT"} {
		t.Run(mode, func(t *testing.T) {
			s := start(t)
			s.sparse("/large")
			c := s.as("phoneacc")
			var nc net.Conn
			if mode == "PASV" {
				nc = c.data()
				c.want("RETR /large", "150 *")
			} else {
				l := activeListener(t, "127.0.0.1:0")
				c.want("PORT 127,0,0,1,"+bytesOfPort(l), "200 *")
				c.want("RETR /large", "150 *")
				var err error
				if nc, err = l.Accept(); err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
			}
			c.Close()
			s.alone()
		})
	}
}

// A client may end its side of the control connection and listen on.
func TestAClientThatSaysNothingMoreIsToldHowItsTransferEnds(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	s.sparse("/large")
	for name, begin := range map[string]func(*conn){
		"an upload":                  func(c *conn) { d := c.data(); c.want("STOR /f", "150 *"); d.Write([]byte("half of it")) },
		"a download":                 func(c *conn) { c.data(); c.want("RETR /large", "150 *") },
		"before the data connection": func(c *conn) { c.port(); c.send("STOR /f\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			c := s.as("phoneacc")
			begin(c)
			if err := c.tcp.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			c.check("the end", c.reply(), "426 *hung up*")
			c.ended()
		})
	}
	s.wantContent("/f", "old")
}

func TestResumedTLSSessionsOfDataConnections(t *testing.T) {
	s := start(t, tlsRequired)
	s.write("/f", strings.Repeat("x", 100_000))
	cache := tls.NewLRUClientSessionCache(4)
	config := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: cache, ServerName: "localhost"}
	c := s.dial()
	c.want("AUTH TLS", "234 *")
	c.Conn = tls.Client(c.tcp, config)
	c.in.Reset(c.Conn)
	c.play(`
		C: PBSZ 0
		S: 200 *
		C: PROT P
		S: 200 *`)
	c.login("phoneacc")
	for range 3 {
		d := tls.Client(c.data(), config)
		c.want("RETR /f", "150 *")
		if got, err := io.ReadAll(d); len(got) != 100_000 || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		d.Close()
		c.check("RETR", c.reply(), "226 *")
	}
}
