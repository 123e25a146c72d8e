package web

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of given connections without buffers, which use the time of a bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// from is a connection with the address of its client.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.address), 1))
}

// dial connects a client.
func (p pipes) dial(address string) net.Conn {
	client, server := net.Pipe()
	p <- from{server, address}
	return client
}

// inABubble serves a Server by pipes in a bubble.
func inABubble(t *testing.T, f func(t *testing.T, s *Server, p pipes)) {
	synctest.Test(t, func(t *testing.T) {
		s, p := New(Options{Source: &house{}}), make(pipes)
		h := s.HTTP(nil)
		ended := make(chan error, 1)
		go func() { ended <- h.Serve(p) }()
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		defer func() {
			cancel()
			close(p)
			h.Close()
			<-ended
			time.Sleep(time.Second) // a connection that was refused waits for so long
		}()
		f(t, s, p)
	})
}

func TestStalledClientsAreDisconnected(t *testing.T) {
	const asset = "GET /assets/uPlot.iife.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, c := range map[string]struct {
		sends string
		ends  time.Duration
	}{
		"an answer is not read":      {asset, answerWithin},
		"a stream is not read":       {"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n", streamWriteWithin},
		"nothing is requested":       {"", headerWithin},
		"a header does not end":      {"GET / HTTP/1.1\r\nHost: localhost\r\n", headerWithin},
		"a form does not come whole": {"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nuser=", answerWithin},
	} {
		t.Run(name, func(t *testing.T) {
			inABubble(t, func(t *testing.T, _ *Server, p pipes) {
				client := p.dial("192.0.2.1")
				defer client.Close()
				if _, err := io.WriteString(client, c.sends); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.ends + 2*time.Second)
				synctest.Wait()
				_ = client.SetWriteDeadline(time.Now().Add(time.Second))
				if _, err := client.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("the connection is still open: %v", err)
				}
			})
		})
	}
}

func TestStreamThatIsReadOutlivesTheTimeOfAnAnswer(t *testing.T) {
	inABubble(t, func(t *testing.T, _ *Server, p pipes) {
		client := p.dial("192.0.2.1")
		defer client.Close()
		if _, err := io.WriteString(client, "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(client)
		for began := time.Now(); time.Since(began) < 10*answerWithin; {
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatalf("it ended after %v: %v", time.Since(began), err)
			}
		}
	})
}

func TestHeadersAreBounded(t *testing.T) {
	for size, want := range map[int]int{60 << 10: 200, 64 << 10: 431} {
		inABubble(t, func(t *testing.T, _ *Server, p pipes) {
			client := p.dial("192.0.2.1")
			defer client.Close()
			go func() {
				_, _ = io.WriteString(client, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", size)+"\r\n\r\n") // or it is refused
			}()
			answer, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != want {
				t.Errorf("a header of %d bytes: %s, want %d", size, answer.Status, want)
			}
		})
	}
}

func TestConnectionsAreBoundedInAllAndByNetwork(t *testing.T) {
	p := make(pipes)
	l := Limit(p, 6, func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, 24).Masked() })
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	// try connects, and returns the server's end; nil: it was closed at once.
	try := func(address string) net.Conn {
		client := p.dial(address)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = client.Read(make([]byte, 1))
		}()
		select {
		case conn := <-accepted:
			return conn
		case <-ended:
			return nil
		}
	}
	var open []net.Conn
	for _, c := range []struct {
		address string
		want    bool
	}{
		{"192.0.2.1", true}, {"192.0.2.2", true}, {"192.0.2.3", true}, {"192.0.2.4", false}, // half of all
		{"198.51.100.1", true}, {"198.51.100.1", true}, {"203.0.113.1", true}, {"203.0.113.1", false}, // all
	} {
		conn := try(c.address)
		if (conn != nil) != c.want {
			t.Fatalf("%s after %d others: let in: %v", c.address, len(open), conn != nil)
		}
		if conn != nil {
			open = append(open, conn)
		}
	}
	open[0].Close()
	open[0].Close() // counts once
	if try("192.0.2.1") == nil || try("203.0.113.1") != nil {
		t.Error("one closed connection makes room for one other")
	}
	for _, conn := range open {
		conn.Close()
	}
	close(p)
	<-accepted
}
