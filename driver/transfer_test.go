package driver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// activeListener accepts the data connection of an active transfer.
type activeListener struct {
	net.Listener
	t    testing.TB
	PORT string // the command
}

func listen(t testing.TB) activeListener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := l.Addr().(*net.TCPAddr).Port
	return activeListener{l, t, fmt.Sprintf("PORT 127,0,0,1,%d,%d", p>>8, p&255)}
}

func (l activeListener) accept() *net.TCPConn {
	l.t.Helper()
	nc, err := l.Accept()
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return nc.(*net.TCPConn)
}

// RFC 959 section 3.2: each transfer has its own data connection. RFC 3659 section 5: REST concerns the next command only, also if that is
// refused; so does ALLO.
func TestATransferNeedsADataConnectionOfItsOwn(t *testing.T) {
	s := start(t)
	s.play(t, strings.ReplaceAll(`
		- write /f x
		a retr /f => NONE
		a stor /f => NONE
		a appe /f => NONE
		a stou => NONE
		a list => NONE
		a nlst => NONE
		a mlsd => NONE
		a RETR /f => 226 * >>> x
		a retr /f => NONE
		a list => NONE
		a REST 1 => 350 *
		a LIST /f => 226 * >>> -rw*
		a RETR /f => 226 * >>> x
		a REST 1 => 350 *
		a retr /f => NONE
		a RETR /f => 226 * >>> x
		a TYPE I => 200 *
		a ALLO 5 => 200 *
		a stor /f => NONE
		a STOR /f <<< new => 226 *
		a PASV => 227 *
		a ABOR => 226 *
		a retr /f => NONE`, "NONE", "425 use PASV, EPSV, PORT or EPRT first"))
	// The bytes that came for a refused upload do not reach the next one. An active connection is used for it.
	c := s.as("phoneacc")
	data := c.data()
	io.WriteString(data, "for another file")
	data.Close()
	c.want("STOR /none/f", "550 /none/f: no such file or directory")
	c.want("STOR /g", "425 *")
	s.wantContent("/g", "(none)")
	active := listen(t)
	c.want(active.PORT, "200 *")
	c.want("RETR /none", "550 *")
	c.send("RETR /f\r\n")
	active.accept()
	c.check("RETR", c.reply(), "150 *")
	c.check("RETR", c.reply(), "226 *")
}

func TestADataConnectionThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	taken := uint16(listen(t).Addr().(*net.TCPAddr).Port)
	plays(t, `
		a PASV => 425 no port is free for a data connection
		a EPSV => 425 no port is free for a data connection
		a list => 425 *`, func(o *setup) { o.settings.FTP.PassivePorts = config.PortRange{First: taken, Last: taken} })
	plays(t, `
		- write /f old
		a PASV => 227 *(127,0,0,1,#,#)*
		a stor /f => 425 /f: cannot open the data connection
		a NOOP => 200 OK
		- file /f old`, func(o *setup) { o.settings.FTP.DataTimeout.Duration = time.Second })
}

// The library cannot parse the zone of a link-local address.
func TestAClientWithALinkLocalAddress(t *testing.T) {
	s := start(t)
	listener, err := net.Listener(nil), errors.New("no interface has a link-local IPv6 address")
	host := ""
	all, _ := net.Interfaces()
	for _, i := range all {
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() && err != nil {
				host = n.IP.String() + "%" + i.Name
				listener, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
			}
		}
	}
	if err != nil {
		t.Skip(err)
	}
	s.addr = net.JoinHostPort(host, fmt.Sprint(listener.Addr().(*net.TCPAddr).Port))
	served := make(chan error, 1)
	go func() { served <- s.driver.Serve(s.control.Listen(listener, nil)) }()
	c := s.as("phoneacc")
	data, err := net.Dial("tcp", net.JoinHostPort(host, fmt.Sprint(harness.Port(c.ask("EPSV")))))
	if err != nil {
		t.Fatal(err)
	}
	c.want("STOR /f", "150 *")
	io.WriteString(data, "new")
	data.Close()
	c.check("STOR", c.reply(), "226 *")
	s.wantContent("/f", "new")
	address, _, _ := strings.Cut(host, "%")
	c.want("EPRT |2|"+address+"|50000|", "502 *use EPSV")
	c.want("PORT 0,0,0,0,195,80", "501 *use EPRT")
	s.halt()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// If the control connection ends, the server cuts the data connection, releases the locks and keeps the old file. The client gets the reason
// if it still reads.
func TestTheEndOfTheControlConnectionCutsTheDataConnection(t *testing.T) {
	s := start(t)
	s.sparse("/large")
	s.write("/f", "old")
	for _, begin := range []func(c *conn){
		func(c *conn) { c.opened("RETR /large", false) },
		func(c *conn) { c.opened("RETR /large", true) },
		func(c *conn) { c.port(); c.send("STOR /f\r\n") },
		func(c *conn) { c.begun("STOR /f", "half a\r\nfi") },
	} {
		for _, end := range []func(c *conn){
			func(c *conn) { c.TCP.Close() },
			(*conn).reset,
			// A client may end its side of the control connection and read on.
			func(c *conn) { c.TCP.CloseWrite(); c.check("the end", c.reply(), "426 *hung up*"); c.ended() },
		} {
			c := s.as("phoneacc")
			c.want("MKD /gone/a", "257 *")
			began := time.Now()
			begin(c)
			end(c)
			s.alone()
			if s.held("/gone/a") {
				t.Error("the lock is still held")
			}
			if d := time.Since(began); d > s.driver.connectWithin()/2 {
				t.Errorf("that took %v", d)
			}
			s.wantContent("/f", "old")
		}
	}
}

func TestATransferWithTwoDataConnectionsIsRefused(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	c := s.as("phoneacc")
	dial := func(port, content string) net.Conn {
		nc, err := net.Dial("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		io.WriteString(nc, content)
		return nc
	}
	for i := range 30 {
		port, command := c.port(), []string{"STOR /f", "STOR /f", "RETR /f"}[i%3]
		first := dial(port, "one")
		if i%3 != 1 {
			dial(port, "another")
		}
		c.want(command, "150 *")
		if i%3 == 1 { // the thief comes second
			dial(port, "")
		}
		if command == "STOR /f" {
			first.Close()
		} else if got, _ := io.ReadAll(first); len(got) != 0 {
			t.Errorf("the thief got %q", got)
		}
		c.check(command, c.reply(), "426 /f: two data connections came from your address; the server cannot tell which is yours")
		s.wantContent("/f", "old")
	}
	c.store("/f", "new")
}

// With SessionReuse, a data connection must resume the session of its control connection. Another one transfers nothing.
func TestADataConnectionMustResumeTheSessionOfItsControlConnection(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		s := start(t, tlsRequired, func(o *setup) { o.sessionReuse = true })
		session := func() (*conn, *tls.Config) {
			config := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "localhost", MaxVersion: version}
			c := s.dial()
			c.upgradeWith(config)
			c.login("phoneacc")
			return c, config
		}
		c, own := session()
		_, others := session()
		const refused = "522 /f: the data connection must resume the TLS session; under TLS 1.2 curl, PHP and Ruby cannot"
		for config, reply := range map[*tls.Config]string{{InsecureSkipVerify: true, MaxVersion: version}: refused, others: refused, own: "226 *"} {
			for range 3 { // a refused connection gets no ticket for the next one
				content := map[bool]string{true: "new", false: "old"}[config == own]
				s.write("/f", "old")
				d := tls.Client(c.data(), config)
				c.want("STOR /f", "150 *")
				d.Write([]byte("new"))
				d.Close()
				c.check(tls.VersionName(version), c.reply(), reply)
				s.wantContent("/f", content)
				d = tls.Client(c.data(), config)
				c.want("RETR /f", "150 *")
				if got, _ := io.ReadAll(d); (string(got) == "new") != (config == own) || len(got) > 0 && config != own {
					t.Errorf("got %q", got)
				}
				d.Close()
				c.check(tls.VersionName(version), c.reply(), reply)
			}
		}
	}
}

func TestATransferThatStandsStillEnds(t *testing.T) {
	s := start(t, secure, func(o *setup) { o.settings.FTP.DataTimeout.Duration = 200 * time.Millisecond })
	s.sparse("/large")
	s.write("/f", "old")
	var stalled []*conn
	began := time.Now()
	for i := range 12 {
		c, handshake := s.dial(), i%3 < 2
		if i%3 > 0 {
			c.upgrade()
		}
		c.login("phoneacc")
		c.want("TYPE I", "200 *")
		command, active := []string{"STOR /f", "RETR /large"}[i%2], i >= 6
		switch d := c.Secure(c.opened(command, active)); {
		case !handshake:
		case command == "STOR /f":
			d.Write([]byte("new"))
		default:
			d.Read(make([]byte, 1))
		}
		stalled = append(stalled, c)
	}
	for _, c := range stalled {
		c.check("a transfer", c.reply(), "426 *: the data connection stood still for too long")
	}
	if d := time.Since(began); d > 4*time.Second { // crypto/tls would wait 5 s to send its close_notify to a client that does not read
		t.Errorf("that took %v", d)
	}
	s.wantContent("/f", "old")
}
