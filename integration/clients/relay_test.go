//go:build linux

package clients

import (
	"bytes"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
)

// relay passes control connections on to a server, and counts the versions of TLS that the server chose.
type relay struct {
	to, address string
	mu          sync.Mutex
	versions    map[string]int
}

func newRelay(t testing.TB, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{to: to, address: l.Addr().String(), versions: make(map[string]int)}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { r.pass(client) })
		}
	})
	return r
}

// seen returns the versions, such as "1.3".
func (r *relay) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.versions))
}

// pass relays one connection until both sides have ended.
func (r *relay) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer server.Close()
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	})
	r.answers(client, server)
	_ = client.(*net.TCPConn).CloseWrite()
	up.Wait()
}

// answers relays what the server sends. A ServerHello (RFC 8446, section 4.1.3) is a handshake record; its extension supported_versions
// means TLS 1.3.
func (r *relay) answers(client io.Writer, server io.Reader) {
	chunk := make([]byte, 32<<10)
	for seen := false; ; {
		n, err := server.Read(chunk)
		if b := chunk[:n]; !seen && n > 5 && b[0] == 22 && b[1] == 3 {
			seen = true
			r.mu.Lock()
			r.versions[choose(bytes.Contains(b, []byte{0, 43, 0, 2, 3, 4}), "1.3", "1.2")]++
			r.mu.Unlock()
		}
		if n > 0 {
			if _, err := client.Write(chunk[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
