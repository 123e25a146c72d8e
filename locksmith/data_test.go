package locksmith

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

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
			conn, err := e.reach(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			w := &wire{conn: conn, timeout: e.Timeout}
			defer w.Close()
			if err := e.handshake(t.Context(), w); err != nil {
				t.Fatal(err)
			}
			if _, err := w.await(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			d, err := e.passive("tcp", l.Addr().String())
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
	a := &active{w: &wire{timeout: time.Second}}
	ours, theirs := tcpPair(t)
	a.w.conn = ours
	said := make(chan string, 1)
	go func() {
		buf := make([]byte, 100)
		n, _ := theirs.Read(buf)
		said <- string(buf[:n])
		_, _ = theirs.Write([]byte("200 ok\r\n"))
	}()
	answer, instead := a.answer("EPSV")
	if line := <-said; !instead || !strings.HasPrefix(line, "EPRT |1|127.0.0.1|") || !strings.HasPrefix(answer, "229 (|||") {
		t.Fatalf("%q, %q", line, answer)
	}
	d, err := a.accept(&endpoint{Server: Server{Timeout: 10 * time.Second}})
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
	if err := d.Close(); err != nil {
		t.Error(err)
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
