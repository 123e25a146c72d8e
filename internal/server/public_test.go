package server

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestThePublicAddressFollowsItsName changes the answer of the name server and the configuration, one step after the other.
func TestThePublicAddressFollowsItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer, asked atomic.Value // the address, "" for an error, or "-" for none in time; the last question
		p := newPublicAddress(slog.New(slog.DiscardHandler))
		p.lookUp = func(ctx context.Context, network, host string) ([]netip.Addr, error) {
			asked.Store(network + " " + host)
			if answer.Load() == "-" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			address, err := netip.ParseAddr(answer.Load().(string))
			return []netip.Addr{address}, err
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- p.run(ctx) }()
		const stays = " " // no reload
		for i, c := range []struct{ answer, name, asked, want string }{
			{"192.0.2.1", stays, "", ""},
			{"-", "ftp.example.org", "ip4 ftp.example.org", ""},
			{"192.0.2.1", stays, "ip4 ftp.example.org", "192.0.2.1"},
			{"192.0.2.2", "ftp.example.org", "", "192.0.2.1"}, // a reload that does not change it
			{"192.0.2.2", stays, "ip4 ftp.example.org", "192.0.2.2"},
			{"", stays, "ip4 ftp.example.org", "192.0.2.2"},
			{"-", stays, "ip4 ftp.example.org", "192.0.2.2"},
			{"192.0.2.3", "other.example.org", "ip4 other.example.org", "192.0.2.3"},
			{"192.0.2.3", "192.0.2.4", "", "192.0.2.4"},
			{"192.0.2.3", stays, "", "192.0.2.4"},
			{"192.0.2.3", "", "", ""},
			{"192.0.2.3", stays, "", ""},
		} {
			answer.Store(c.answer)
			asked.Store("")
			if c.name == stays {
				time.Sleep(2*lookUpEvery + time.Millisecond) // never at the time of a look-up
			} else {
				began := time.Now()
				p.use(t.Context(), c.name)
				if took := time.Since(began); took > lookUpWithin {
					t.Errorf("step %d: the reload waited for %v", i, took)
				}
			}
			want := netip.Addr{}
			if c.want != "" {
				want = netip.MustParseAddr(c.want)
			}
			if got := p.get(); got != want || asked.Load() != c.asked {
				t.Errorf("step %d: %v, asked %q; want %v, asked %q", i, got, asked.Load(), want, c.asked)
			}
		}
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}
