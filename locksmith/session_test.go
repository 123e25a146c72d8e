package locksmith

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/textproto"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestA421EndsTheConnection(t *testing.T) {
	inBubble(t, []string{hello("") + "> NOOP\n< 421 idle for too long\n"}, func(t *testing.T, s *scripted) {
		c, err := Dial(t.Context(), s.options().Server)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.s.ask(t.Context(), "NOOP"); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "421 idle for too long") {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestAReplyWithoutAnEndEndsTheConnection(t *testing.T) {
	ours, theirs := tcpPair(t)
	go func() {
		for {
			if _, err := theirs.Write([]byte("220-more\r\n" + strings.Repeat("x", 1<<16) + "\r\n")); err != nil {
				return
			}
		}
	}()
	o := Server{Address: "h", DialContext: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
	if _, err := Dial(t.Context(), o); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "without an end") {
		t.Error(err)
	}
}

func TestALineEndIsNotSent(t *testing.T) {
	s := &session{link: &link{}}
	if _, err := s.ask(t.Context(), "MKD a\r\nDELE b"); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	for _, s := range []Server{{Address: "h", User: "a\r\nDELE b"}, {Address: "h", Password: "a\n"}, {Address: "h", Dir: "a\nb"}} {
		if _, err := s.resolve(); err == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}

func TestNothingThatWasSaidBeforeTLSCountsAfterIt(t *testing.T) {
	ours, theirs := tcpPair(t)
	go func() {
		_, _ = io.WriteString(theirs, "220 ready\r\n")
		_, _ = theirs.Read(make([]byte, 100))
		_, _ = io.WriteString(theirs, "234 go\r\n230 in\r\n")
	}()
	o := Server{Address: "h", TLS: TLSExplicit, DialContext: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
	if _, err := Dial(t.Context(), o); !errors.Is(err, ErrTLS) {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"host": "host:21", "host:2121": "host:2121", "10.0.0.1": "10.0.0.1:21", "::1": "[::1]:21", "[::1]": "[::1]:21",
		"[::1]:2121": "[::1]:2121", "fe80::1%eth0": "[fe80::1%eth0]:21",
		"": "", "host:": "", ":21": "", "[::1": "", "[]": "",
	} {
		e, err := Server{Address: address}.resolve()
		if want == "" {
			if !errors.Is(err, ErrUnreachable) {
				t.Errorf("%q: %v", address, err)
			}
			continue
		}
		if err != nil || e.Address != want {
			t.Errorf("%q is %v, %v", address, e, err)
		}
	}
	e, err := Server{Address: "host", TLS: TLSImplicit}.resolve()
	if err != nil || e.Address != "host:990" || e.tls.ServerName != "host" || e.tls.ClientSessionCache == nil || e.User != "anonymous" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestNamesInQuotes(t *testing.T) {
	for text, want := range map[string]string{
		`"/a" created`: "/a", `"/a ""b"" c" locked`: `/a "b" c`, `/a created`: "", `"/a`: "", `""`: "",
	} {
		if got := (reply{257, text}).quotedName(); got != want {
			t.Errorf("%s is %q", text, got)
		}
	}
}

func TestLinesOfSiteLocks(t *testing.T) {
	now := time.Now()
	i, ok := lockOfLine("/l/a b: shared by eve@10.0.0.6 for 1m5s, never expires, token 7; shared by bob@10.0.0.5 for 5s, expires in 1s, token 9; 2 in the queue", now)
	want := Info{Path: "/l/a b", Held: true, Since: now.Add(-65 * time.Second), Waiting: 2, Holders: []Holder{
		{Owner: "eve@10.0.0.6", Held: 65 * time.Second, Shared: true, Token: 7},
		{Owner: "bob@10.0.0.5", Held: 5 * time.Second, Expires: time.Second, Shared: true, Token: 9},
	}}
	if !ok || !reflect.DeepEqual(i, want) {
		t.Errorf("%+v", i)
	}
	if i, ok := lockOfLine("what is this", now); ok {
		t.Errorf("%+v", i)
	}
}

// certificate is one for 127.0.0.1 that signs itself.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestDataConnectionsResumeTheTLSSession(t *testing.T) {
	cert, pool := certificate(t)
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			config := &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: version}
			resumed := make(chan bool, 2)
			go func() {
				defer close(resumed)
				for range 2 {
					c, err := l.Accept()
					if err != nil {
						return
					}
					secure := tls.Server(c, config)
					if _, err := secure.Write([]byte("220 ready\r\n")); err != nil {
						t.Error(err)
					}
					resumed <- secure.ConnectionState().DidResume
					_ = secure.Close()
				}
			}()
			e, err := Server{Address: l.Addr().String(), TLS: TLSImplicit, Config: &tls.Config{RootCAs: pool}}.resolve()
			if err != nil {
				t.Fatal(err)
			}
			control, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			s := &session{endpoint: e, link: &link{Conn: control, limit: e.Timeout}}
			defer s.drop()
			if err := s.handshake(); err != nil {
				t.Fatal(err)
			}
			if n, err := s.conn.Read(make([]byte, 100)); n == 0 {
				t.Fatal(err)
			}
			d, err := s.openData(l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if n, err := d.Read(make([]byte, 100)); n == 0 { // an EOF may come with the bytes
				t.Fatal(err)
			}
			if <-resumed {
				t.Error("the control connection resumed something")
			}
			if !<-resumed {
				t.Error("the data connection began a session of its own")
			}
		})
	}
}

func TestActiveModeLetsInTheServerAlone(t *testing.T) {
	ours, theirs := tcpPair(t)
	s := &session{endpoint: &endpoint{Server: Server{Timeout: 10 * time.Second}}, link: &link{Conn: ours, limit: time.Second}}
	s.text = textproto.NewConn(s.link)
	s.active = &active{s: s}
	said := make(chan string, 1)
	go func() {
		buf := make([]byte, 100)
		n, _ := theirs.Read(buf)
		said <- string(buf[:n])
		_, _ = theirs.Write([]byte("200 ok\r\n"))
	}()
	answer := s.active.answer("EPSV")
	if line := <-said; !strings.HasPrefix(line, "EPRT |1|127.0.0.1|") || !strings.HasPrefix(answer, "229 (|||") {
		t.Fatalf("%q, %q", line, answer)
	}
	d, err := s.openData("")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(answer, "|||")
	address := "127.0.0.1:" + strings.TrimSuffix(port, "|)")
	stranger, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", address)
	if err != nil {
		t.Skip("this machine has no second loopback address: ", err)
	}
	defer stranger.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	_, _ = stranger.Write([]byte("forged"))
	_, _ = server.Write([]byte("file"))
	buf := make([]byte, 100)
	if n, err := d.Read(buf); err != nil || string(buf[:n]) != "file" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	_ = server.Close()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatIsBrokenOffDoesNotEndLikeAFile(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, why := range []error{nil, errSource} {
		control, _ := tcpPair(t)
		s := &session{endpoint: &endpoint{Server: Server{Timeout: 10 * time.Second, DialContext: new(net.Dialer).DialContext}}, link: &link{Conn: control}}
		d, err := s.openData(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
		if why != nil {
			s.abort(why)
		}
		closed := make(chan error, 1)
		go func() { closed <- d.Close() }()
		if _, err := io.ReadAll(c); (err == nil) != (why == nil) {
			t.Errorf("%v: the server sees %v", why, err)
		}
		c.Close()
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
}

// tcpPair is a connection on the loopback and its other end.
func tcpPair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	return a, b
}
