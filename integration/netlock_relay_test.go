package integration

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// greeter is the address of a server that says one thing to each client and hangs up.
func greeter(t testing.TB, greeting string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, greeting)
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().String()
}

// lineCounter counts the lines that clients say.
type lineCounter struct{ lines atomic.Int64 }

// Write implements io.Writer.
func (n *lineCounter) Write(p []byte) (int, error) {
	n.lines.Add(int64(bytes.Count(p, []byte("\n"))))
	return len(p), nil
}

// relayed is an address from which every connection leads to the server, and where what clients say is counted.
func relayed(t testing.TB, server string, n *lineCounter) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				_ = from.Close()
				continue
			}
			all.Go(func() {
				_, _ = io.Copy(io.MultiWriter(to, n), from)
				_ = to.Close()
			})
			all.Go(func() {
				_, _ = io.Copy(from, to)
				_ = from.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return l.Addr().String()
}
