package integration

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy is what lies between clients and a server in a bad network: it passes control connections on, and the data
// connections that are agreed on in them by EPSV, and delays, drops and cuts what it passes on. Its own address
// stays while the server's changes.
type proxy struct {
	target   atomic.Pointer[string]
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	open   map[io.Closer]struct{}
	closed bool
	cuts   map[string]int // how often each doom came
}

func startProxy(t testing.TB, seed uint64) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, random: rand.New(rand.NewPCG(seed, 2)), open: make(map[io.Closer]struct{}), cuts: make(map[string]int)}
	p.running.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// close ends everything that passes and waits for it. A second one does nothing.
func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// hold keeps a connection or a listener for close, or closes it at once.
func (p *proxy) hold(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = struct{}{}
	if p.closed {
		c.Close()
	}
}

func (p *proxy) drop(conns ...io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.open, c)
	}
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.hold(client)
		p.running.Go(func() { p.pass(client, *p.target.Load(), true) })
	}
}

// doom is what becomes of a connection, and when.
type doom struct {
	kind  string // "": it is passed on
	after time.Duration
	slow  time.Duration // the most that each piece is delayed
}

func (p *proxy) doom(control bool) doom {
	p.mu.Lock()
	defer p.mu.Unlock()
	kinds := []string{"", "", "", "", "", "", "reset", "server first", "client first", "drop"}
	if control { // they live longer
		kinds = kinds[3:]
	}
	f := doom{kind: kinds[p.random.IntN(len(kinds))], after: time.Duration(p.random.Int64N(int64(time.Second)))}
	if !control {
		f.after /= 200
	}
	if p.random.IntN(3) == 0 {
		f.slow = time.Duration(1+p.random.IntN(8)) * time.Millisecond
	}
	p.cuts[f.kind]++
	return f
}

// pass connects a client to the server until one of them ends it, or its doom comes.
func (p *proxy) pass(client net.Conn, to string, control bool) {
	server, err := net.DialTimeout("tcp", to, patience)
	if err != nil {
		p.drop(client)
		return
	}
	p.hold(server)
	f := p.doom(control)
	var dropping atomic.Bool
	struck := make(chan struct{})
	var cut *time.Timer
	if f.kind != "" {
		cut = time.AfterFunc(f.after, func() {
			defer close(struck)
			p.strike(f.kind, client, server, &dropping)
		})
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(client, server, f.slow, &dropping, false) })
	both.Go(func() { p.pump(server, client, f.slow, &dropping, control) })
	both.Wait()
	if cut != nil && !cut.Stop() {
		<-struck
	}
	p.drop(client, server)
}

// strike ends a connection as its doom has it. One that is dropped passes nothing on any more and ends when the client
// gives up.
func (p *proxy) strike(kind string, client, server net.Conn, dropping *atomic.Bool) {
	switch kind {
	case "reset":
		for _, c := range []net.Conn{client, server} {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	case "server first":
		server.Close()
		time.Sleep(20 * time.Millisecond) // the client knows later than the server
		client.Close()
	case "client first":
		client.Close()
		time.Sleep(20 * time.Millisecond)
		server.Close()
	case "drop":
		dropping.Store(true)
	}
}

// pump passes on what comes from one side, and then its end.
func (p *proxy) pump(from, to net.Conn, slow time.Duration, dropping *atomic.Bool, control bool) {
	r := bufio.NewReader(from)
	next := func() ([]byte, error) {
		buffer := make([]byte, 32<<10)
		n, err := r.Read(buffer)
		return buffer[:n], err
	}
	if control { // replies, line by line
		next = func() ([]byte, error) {
			line, err := r.ReadBytes('\n')
			return p.reroute(from, line), err
		}
	}
	for {
		piece, err := next()
		if len(piece) > 0 && !dropping.Load() {
			time.Sleep(slow)
			if _, werr := to.Write(piece); werr != nil {
				err = werr
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) && !dropping.Load() {
				_ = to.(*net.TCPConn).CloseWrite()
			} else {
				from.Close()
				to.Close()
			}
			return
		}
	}
}

var entering = regexp.MustCompile(`^229 .*\(\|\|\|(\d+)\|\)`)

// reroute has the client of a 229 connect to the proxy.
func (p *proxy) reroute(server net.Conn, line []byte) []byte {
	m := entering.FindSubmatch(line)
	if m == nil {
		return line
	}
	host, _, _ := net.SplitHostPort(server.RemoteAddr().String())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return line
	}
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(5 * time.Second))
	to := net.JoinHostPort(host, string(m[1]))
	p.hold(l)
	p.running.Go(func() {
		defer p.drop(l)
		if client, err := l.Accept(); err == nil {
			p.hold(client)
			p.pass(client, to, false)
		}
	})
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	return bytes.Replace(line, fmt.Appendf(nil, "|||%s|", m[1]), fmt.Appendf(nil, "|||%s|", port), 1)
}
