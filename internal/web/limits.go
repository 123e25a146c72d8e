package web

import (
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	headerWithin = 10 * time.Second // bounds the reading of a request's header
	readWithin   = 30 * time.Second // and of the whole request
	answerWithin = time.Minute      // bounds an answer from the end of the header; a login may take half of it
	idleWithin   = 30 * time.Second // how long a connection may wait for its next request
	maxHeader    = 64 << 10
)

// HTTP returns a server with the handler and with limits for clients. Streams extend the limit of answers with each write.
func (s *Server) HTTP(errorLog *log.Logger) *http.Server {
	return &http.Server{
		Handler: s.Handler(), ErrorLog: errorLog,
		ReadHeaderTimeout: headerWithin, ReadTimeout: readWithin, WriteTimeout: answerWithin, IdleTimeout: idleWithin,
		MaxHeaderBytes: maxHeader - 4096, // net/http adds so much
	}
}

// Limit returns a listener that closes connections above a total number at a time, and above half of it from one network.
func Limit(l net.Listener, total int, network func(netip.Addr) netip.Prefix) net.Listener {
	return &limited{Listener: l, total: total, network: network, open: make(map[netip.Prefix]int)}
}

type limited struct {
	net.Listener
	total   int
	network func(netip.Addr) netip.Prefix

	mu   sync.Mutex
	all  int
	open map[netip.Prefix]int // connections of each network
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, _ := netip.ParseAddrPort(conn.RemoteAddr().String()) // a TCP address
		network := l.network(from.Addr())
		if l.enter(network) {
			return &limitedConn{Conn: conn, leave: sync.OnceFunc(func() { l.leave(network) })}, nil
		}
		_ = conn.Close() // before a byte was read
	}
}

func (l *limited) enter(n netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.total || l.open[n] >= (l.total+1)/2 {
		return false
	}
	l.all++
	l.open[n]++
	return true
}

func (l *limited) leave(n netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.open[n]--; l.open[n] == 0 {
		delete(l.open, n)
	}
}

// limitedConn leaves the count when it is closed.
type limitedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
