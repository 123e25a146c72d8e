package driver

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
)

// Somebody else on the client's address connects to its passive port, too: before it or after it. Neither one's bytes are
// published, and neither one gets the file without the client being told.
func TestATransferWithTwoDataConnectionsIsRefused(t *testing.T) {
	s := start(t)
	s.write("/f", "old")
	c := s.as("phoneacc")
	dial := func(port string) net.Conn {
		nc, err := net.Dial("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return nc
	}
	const refused = "426 /f: two data connections came from your address, and one of them is somebody else's"
	for range 20 {
		port := c.port()
		thief := dial(port)
		thief.Write([]byte("the thief's"))
		thief.Close()
		own := dial(port)
		c.want("STOR /f", "150 *")
		own.Write([]byte("new"))
		own.Close()
		c.check("after the thief", c.reply(), refused)
		s.wantContent("/f", "old")

		port = c.port()
		own = dial(port)
		c.want("STOR /f", "150 *")
		own.Write([]byte("new"))
		dial(port)
		own.Close()
		c.check("before the thief", c.reply(), refused)
		s.wantContent("/f", "old")

		port = c.port()
		thief, own = dial(port), dial(port)
		c.want("RETR /f", "150 *")
		if got, _ := io.ReadAll(thief); len(got) != 0 {
			t.Errorf("the thief got %q", got)
		}
		c.check("a download", c.reply(), refused)
		own.Close()
	}
	c.store("/f", "new")
	s.wantContent("/f", "new")
}

func TestAStrangerInTheMiddleOfATransferChangesNothing(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	port := c.port()
	own, err := net.Dial("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	c.want("STOR /f", "150 *")
	own.Write([]byte("new"))
	for i := range 5 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i))}}
		nc, err := d.Dial("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	own.Close()
	c.check("STOR", c.reply(), "226 *")
	s.wantContent("/f", "new")
}

// With SessionReuse a data connection is the client's own, or none: what resumes another session of the same client, or none,
// sends and gets nothing.
func TestADataConnectionMustResumeTheSessionOfItsControlConnection(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			s := start(t, tlsRequired, func(o *setup) { o.sessionReuse = true })
			s.write("/f", "old")
			session := func() (*conn, *tls.Config) {
				config := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "localhost", MaxVersion: version}
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
				return c, config
			}
			c, own := session()
			_, others := session()
			const refused = "522 /f: the data connection must resume the TLS session of the control connection"
			for name, config := range map[string]*tls.Config{
				"a session of its own":               {InsecureSkipVerify: true, MaxVersion: version},
				"that of another control connection": others,
			} {
				d := tls.Client(c.data(), config)
				c.want("STOR /f", "150 *")
				d.Write([]byte("new"))
				d.Close()
				c.check(name, c.reply(), refused)
				s.wantContent("/f", "old")
				d = tls.Client(c.data(), config)
				c.want("RETR /f", "150 *")
				if got, _ := io.ReadAll(d); len(got) > 0 {
					t.Errorf("%s: got %q", name, got)
				}
				c.check(name, c.reply(), refused)
			}
			for range 5 {
				d := tls.Client(c.data(), own)
				c.want("STOR /g", "150 *")
				d.Write([]byte("new"))
				d.Close()
				c.check("STOR", c.reply(), "226 *")
				d = tls.Client(c.data(), own)
				c.want("RETR /g", "150 *")
				if got, err := io.ReadAll(d); string(got) != "new" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
				d.Close()
				c.check("RETR", c.reply(), "226 *")
			}
		})
	}
}
