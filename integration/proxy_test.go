package integration

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy is a bad network: it delays, drops and cuts connections.
type proxy struct {
	*relay
	target atomic.Pointer[string]

	mu     sync.Mutex
	random *rand.Rand
	cuts   map[string]int // how often each doom came
}

func startProxy(t testing.TB, seed uint64) *proxy {
	t.Helper()
	p := &proxy{random: rand.New(rand.NewPCG(seed, 2)), cuts: make(map[string]int)}
	p.relay = startRelay(t, func() string { return *p.target.Load() }, func(_ *relay, c pair, data bool) { p.pass(c, !data) })
	return p
}

// doom is the fault of a connection and its time.
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

// pass forwards a connection until one side ends it, or its doom comes.
func (p *proxy) pass(c pair, control bool) {
	f := p.doom(control)
	var dropping atomic.Bool
	struck := make(chan struct{})
	var cut *time.Timer
	if f.kind != "" {
		cut = time.AfterFunc(f.after, func() {
			defer close(struck)
			c.strike(f.kind, &dropping)
		})
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(c.client, c.server, f.slow, &dropping, false) })
	both.Go(func() { p.pump(c.server, c.client, f.slow, &dropping, control) })
	both.Wait()
	if cut != nil && !cut.Stop() {
		<-struck
	}
}

// strike ends a connection by its doom. A dropped connection forwards no bytes, and ends when the client gives up.
func (c pair) strike(kind string, dropping *atomic.Bool) {
	switch kind {
	case "reset":
		c.reset()
	case "server first":
		c.server.Close()
		time.Sleep(20 * time.Millisecond) // the client knows later than the server
		c.client.Close()
	case "client first":
		c.client.Close()
		time.Sleep(20 * time.Millisecond)
		c.server.Close()
	case "drop":
		dropping.Store(true)
	}
}

// pump forwards one direction, and then its end.
func (p *proxy) pump(from, to *net.TCPConn, slow time.Duration, dropping *atomic.Bool, control bool) {
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
				_ = to.CloseWrite()
			} else {
				from.Close()
				to.Close()
			}
			return
		}
	}
}
