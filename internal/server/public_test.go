package server

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestThePublicAddressFollowsItsName changes the answer of the name server and the configuration, one step after the other.
func TestThePublicAddressFollowsItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer, asked atomic.Value // the addresses, "" for an error, or "-" for none in time; the last question
		p := newPublicAddress(slog.New(slog.DiscardHandler))
		p.lookUp = func(ctx context.Context, network, host string) (all []netip.Addr, err error) {
			asked.Store(network + " " + host)
			if literal, err := netip.ParseAddr(host); err == nil { // as a net.Resolver
				return []netip.Addr{literal}, nil
			}
			if answer.Load() == "-" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			for text := range strings.SplitSeq(answer.Load().(string), " ") {
				address, err := netip.ParseAddr(text)
				if err != nil {
					return nil, err
				}
				all = append(all, address)
			}
			return all, nil
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
			{"192.0.2.5 192.0.2.2", stays, "ip4 ftp.example.org", "192.0.2.2"}, // name servers change the order
			{"", stays, "ip4 ftp.example.org", "192.0.2.2"},
			{"-", stays, "ip4 ftp.example.org", "192.0.2.2"},
			{"192.0.2.3", "other.example.org", "ip4 other.example.org", "192.0.2.3"},
			{"192.0.2.3", "192.0.2.4", "ip4 192.0.2.4", "192.0.2.4"},
			{"192.0.2.3", stays, "ip4 192.0.2.4", "192.0.2.4"},
			{"192.0.2.3", "", "", ""},
			{"192.0.2.3", stays, "", ""},
		} {
			answer.Store(c.answer)
			asked.Store("")
			if c.name == stays {
				time.Sleep(2*lookUpEvery + time.Millisecond) // never at the time of a look-up
			} else {
				began := time.Now()
				p.setName(t.Context(), c.name)
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
