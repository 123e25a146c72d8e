package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"
)

// relay is a proxy between clients and a server. Its address stays the same when the server's changes. The function carry forwards each connection;
// control forwards a control connection and leads its data connections through the relay, too.
type relay struct {
	carry    func(r *relay, p pair, data bool) // returns when the connection has ended
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	open   map[io.Closer]struct{}
	closed bool
}

// pair is a connection's two halves.
type pair struct{ client, server *net.TCPConn }

// startRelay starts a relay that ends with the test.
func startRelay(t testing.TB, target func() string, carry func(r *relay, p pair, data bool)) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{carry: carry, listener: l, open: make(map[io.Closer]struct{})}
	r.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			r.running.Go(func() { r.join(client, target(), false) })
		}
	})
	t.Cleanup(r.close)
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

// close closes all connections and waits for their goroutines. A second call does nothing.
func (r *relay) close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for c := range r.open {
		c.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}

// hold keeps a connection or a listener for close, or closes it at once.
func (r *relay) hold(c io.Closer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[c] = struct{}{}
	if r.closed {
		c.Close()
	}
}

func (r *relay) drop(c io.Closer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Close()
	delete(r.open, c)
}

// join connects a client to the server and has the connection carried.
func (r *relay) join(client net.Conn, to string, data bool) {
	r.hold(client)
	defer r.drop(client)
	server, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		return
	}
	r.hold(server)
	defer r.drop(server)
	r.carry(r, pair{client.(*net.TCPConn), server.(*net.TCPConn)}, data)
}

// control forwards both directions of a control connection.
func (r *relay) control(p pair) {
	var both sync.WaitGroup
	both.Go(func() { pass(p.server, p.client) })
	for lines := bufio.NewReader(p.server); ; {
		line, err := lines.ReadBytes('\n')
		if _, werr := p.client.Write(r.reroute(p.server, line)); err != nil || werr != nil {
			break
		}
	}
	_ = p.client.CloseWrite()
	both.Wait()
}

// pass forwards one direction of a connection, and its end.
func pass(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}

var entering = regexp.MustCompile(`^22[79] .*\((?:\|\|\|(\d+)\||\d+,\d+,\d+,\d+,(\d+),(\d+)\))`)

// reroute changes a 227 or 229 so that the client connects to the relay.
func (r *relay) reroute(server *net.TCPConn, line []byte) []byte {
	m := entering.FindSubmatch(line)
	if m == nil {
		return line
	}
	number := func(i int) int { n, _ := strconv.Atoi(string(m[i])); return n }
	to := net.TCPAddr{IP: server.RemoteAddr().(*net.TCPAddr).IP, Port: number(1) | number(2)<<8 | number(3)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return line
	}
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	r.hold(l)
	r.running.Go(func() {
		client, err := l.Accept()
		r.drop(l)
		if err == nil {
			r.join(client, to.String(), true)
		}
	})
	port := l.Addr().(*net.TCPAddr).Port
	if len(m[1]) > 0 {
		return fmt.Appendf(nil, "229 Entering (|||%d|)\r\n", port)
	}
	return fmt.Appendf(nil, "227 Entering (127,0,0,1,%d,%d)\r\n", port>>8, port&255)
}

// reset resets both halves, like a router without state.
func (p pair) reset() {
	for _, c := range []*net.TCPConn{p.server, p.client} {
		_ = c.SetLinger(0)
		c.Close()
	}
}

// startCutter starts a relay that ends each data connection after a number of bytes, in either direction, like the end of the file. With hold it
// stops there until hold is closed, and then passes the rest on; reached gets a value when it stops.
func startCutter(t testing.TB, server string, after int64, hold chan struct{}) (address string, reached <-chan struct{}) {
	t.Helper()
	held := make(chan struct{}, 2)
	return startRelay(t, func() string { return server }, func(r *relay, p pair, data bool) {
		if !data {
			r.control(p)
			return
		}
		some := func(to, from *net.TCPConn) {
			_, _ = io.CopyN(to, from, after)
			if hold != nil {
				held <- struct{}{}
				<-hold
				_, _ = io.Copy(to, from)
			}
			_ = to.CloseWrite()
			_, _ = io.Copy(io.Discard, from) // the other side must not notice
		}
		var both sync.WaitGroup
		both.Go(func() { some(p.server, p.client) })
		some(p.client, p.server)
		both.Wait()
	}).address(), held
}
