package server

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var firstPublic, secondPublic = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")

// resolver gives the answers of a test.
type resolver struct {
	mu     sync.Mutex
	answer netip.Addr
	fails  error
	hangs  bool
	asked  int
	last   string
}

func (n *resolver) lookUp(ctx context.Context, network, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	n.last = network + " " + host
	if n.hangs {
		n.mu.Unlock()
		<-ctx.Done()
		n.mu.Lock()
		return nil, ctx.Err()
	}
	return []netip.Addr{n.answer}, n.fails
}

// now changes or reads the fields.
func (n *resolver) now(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// resolving runs f with a public address that is looked up in n.
func resolving(t *testing.T, n *resolver, f func(t *testing.T, p *publicAddress)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPublicAddress(slog.New(slog.DiscardHandler))
		p.lookUp = n.lookUp
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- p.run(ctx) }()
		defer func() {
			cancel()
			if err := <-over; err != nil {
				t.Error(err)
			}
		}()
		f(t, p)
	})
}

func TestAPublicNameIsLookedUpAgainAndAgain(t *testing.T) {
	n := &resolver{answer: firstPublic}
	resolving(t, n, func(t *testing.T, p *publicAddress) {
		expect := func(want netip.Addr, lookUps int) {
			t.Helper()
			synctest.Wait()
			n.now(func() {
				if got := p.get(); got != want || n.asked != lookUps {
					t.Errorf("got %v after %d look-ups, want %v after %d", got, n.asked, want, lookUps)
				}
			})
		}
		expect(netip.Addr{}, 0)
		p.use(t.Context(), "ftp.example.org")
		expect(firstPublic, 1)
		n.now(func() { n.answer = secondPublic })
		time.Sleep(askEvery - time.Second)
		expect(firstPublic, 1)
		time.Sleep(time.Second)
		expect(secondPublic, 2)
		n.now(func() { n.fails = errors.New("no name server") })
		time.Sleep(askEvery)
		expect(secondPublic, 3) // the last answer holds
		n.now(func() { n.answer, n.fails = firstPublic, nil })
		time.Sleep(askAgain)
		expect(firstPublic, 4)

		p.use(t.Context(), "ftp.example.org") // a reload that does not change it
		expect(firstPublic, 4)
		n.now(func() { n.answer = secondPublic })
		p.use(t.Context(), "other.example.org")
		expect(secondPublic, 5)
		n.now(func() {
			if n.last != "ip4 other.example.org" {
				t.Error(n.last)
			}
		})
		p.use(t.Context(), "192.0.2.1")
		expect(firstPublic, 5)
		p.use(t.Context(), "")
		expect(netip.Addr{}, 5)
		time.Sleep(time.Hour)
		expect(netip.Addr{}, 5)
	})
}

// A client that sends PASV does not wait for a name server, and a start waits for askWithin at most.
func TestNoClientWaitsForANameServer(t *testing.T) {
	n := &resolver{answer: firstPublic, hangs: true}
	resolving(t, n, func(t *testing.T, p *publicAddress) {
		began := time.Now()
		p.use(t.Context(), "ftp.example.org")
		if took := time.Since(began); took != askWithin || p.get().IsValid() {
			t.Errorf("it took %v; %v", took, p.get())
		}
		n.now(func() { n.hangs = false })
		time.Sleep(askAgain)
		synctest.Wait()
		n.now(func() { n.hangs = true })
		for range 1000 { // 1,000 s
			time.Sleep(time.Second)
			began := time.Now()
			if got := p.get(); got != firstPublic {
				t.Fatal(got)
			}
			if took := time.Since(began); took > 0 {
				t.Fatalf("it took %v", took)
			}
		}
		synctest.Wait()
		n.now(func() {
			if n.asked < 10 {
				t.Errorf("it was asked %d times", n.asked)
			}
		})
	})
}
