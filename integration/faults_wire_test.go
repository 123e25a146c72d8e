package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// wire lies between one client and the server. It passes on a control connection and one passive data connection, until
// so many bytes were uploaded; then it is cut, and nothing more of the upload is passed on.
type wire struct {
	t     testing.TB
	to    string // the server
	limit int64
	cut   func(w *wire)

	control, data net.Listener
	running       sync.WaitGroup

	mu    sync.Mutex
	ends  []*net.TCPConn // all, to be closed in the end
	ctl   pair
	dat   pair
	wasAt int64 // how many bytes of the upload the server was sent
}

// pair is a connection's two halves.
type pair struct{ client, server *net.TCPConn }

// newWire makes a wire for one client; it ends with the test.
func newWire(t testing.TB, to string, limit int64, cut func(w *wire)) *wire {
	t.Helper()
	w := &wire{t: t, to: to, limit: limit, cut: cut}
	var err error
	if w.control, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
		w.data, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	w.running.Go(w.carryControl)
	return w
}

func (w *wire) address() string { return w.control.Addr().String() }

func (w *wire) close() {
	w.control.Close()
	w.data.Close()
	w.mu.Lock()
	for _, c := range w.ends {
		c.Close()
	}
	w.ends = nil
	w.mu.Unlock()
	w.running.Wait()
}

// join accepts the client, once, and connects to the server.
func (w *wire) join(l net.Listener, to string) (p pair, ok bool) {
	c, err := l.Accept()
	l.Close()
	if err != nil {
		return p, false
	}
	s, err := net.Dial("tcp", to)
	if err != nil {
		c.Close()
		return p, false
	}
	p = pair{c.(*net.TCPConn), s.(*net.TCPConn)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = append(w.ends, p.client, p.server)
	return p, true
}

func (w *wire) carryControl() {
	p, ok := w.join(w.control, w.to)
	if !ok {
		return
	}
	w.mu.Lock()
	w.ctl = p
	w.mu.Unlock()
	w.running.Go(func() { pass(p.server, p.client) })
	for r := bufio.NewReader(p.server); ; {
		line, err := r.ReadString('\n')
		if port := passivePort(line); port != 0 {
			w.running.Go(func() { w.carryData(port) })
			line = passiveReply(line, w.data.Addr().(*net.TCPAddr).Port)
		}
		if _, werr := io.WriteString(p.client, line); err != nil || werr != nil {
			_ = p.client.CloseWrite()
			return
		}
	}
}

// pass passes on what one end sends, and its end.
func pass(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}

func (w *wire) carryData(port int) {
	host, _ := split(w.to)
	p, ok := w.join(w.data, net.JoinHostPort(host, strconv.Itoa(port)))
	if !ok {
		return
	}
	w.mu.Lock()
	w.dat = p
	w.mu.Unlock()
	n, _ := io.CopyN(p.server, p.client, w.limit)
	w.mu.Lock()
	w.wasAt = n
	w.mu.Unlock()
	w.cut(w)
	_, _ = io.Copy(io.Discard, p.server) // until the server ends it
	p.reset()
}

// passivePort is the port of a 227 or 229; 0 if the line is none.
func passivePort(line string) int {
	var a, b, c, d, high, low, port int
	inside := line[strings.LastIndexByte(line, '(')+1:]
	switch {
	case strings.HasPrefix(line, "229 "):
		_, _ = fmt.Sscanf(inside, "|||%d|", &port)
	case strings.HasPrefix(line, "227 "):
		_, _ = fmt.Sscanf(inside, "%d,%d,%d,%d,%d,%d", &a, &b, &c, &d, &high, &low)
		port = high<<8 | low
	}
	return port
}

func passiveReply(line string, port int) string {
	if strings.HasPrefix(line, "229 ") {
		return fmt.Sprintf("229 Entering (|||%d|)\r\n", port)
	}
	return fmt.Sprintf("227 Entering (127,0,0,1,%d,%d)\r\n", port>>8, port&255)
}

// connections are the control and the data connection.
func (w *wire) connections() (control, data pair) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ctl, w.dat
}

// sent is how many bytes of the upload the server was sent before the cut.
func (w *wire) sent() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wasAt
}

// reset ends both halves at once, as a router does that has forgotten them.
func (p pair) reset() {
	for _, c := range []*net.TCPConn{p.server, p.client} {
		_ = c.SetLinger(0)
		c.Close()
	}
}

// finish ends the server's half as if the client had closed it, and breaks the client's.
func (p pair) finish() {
	_ = p.server.CloseWrite()
	_ = p.client.SetLinger(0)
	p.client.Close()
}
