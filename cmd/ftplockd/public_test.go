package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPublicNameIsLookedUpAgainWhenItMayHaveChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
		answer, fails, asked := first, error(nil), 0
		p := &publicAddress{name: "ftp.example.org", log: slog.New(slog.DiscardHandler)}
		p.lookUp = func(_ context.Context, network, host string) ([]netip.Addr, error) {
			if network != "ip4" || host != "ftp.example.org" {
				t.Error("asked for", network, host)
			}
			asked++
			return []netip.Addr{answer}, fails
		}
		expect := func(want netip.Addr, lookUps int) {
			t.Helper()
			if got := p.get(t.Context()); got != want || asked != lookUps {
				t.Errorf("got %v after %d look-ups, want %v after %d", got, asked, want, lookUps)
			}
		}
		expect(first, 1)
		answer = second
		time.Sleep(askEvery - time.Second)
		expect(first, 1)
		time.Sleep(time.Second)
		expect(second, 2)
		fails = errors.New("no name server")
		time.Sleep(askEvery)
		expect(second, 3) // the last answer holds
	})
}

func TestAPublicAddressNeedsNoLookUp(t *testing.T) {
	if newPublicAddress("", nil) != nil {
		t.Error("no name")
	}
	if got := newPublicAddress("192.0.2.7", nil)(t.Context()); got != netip.MustParseAddr("192.0.2.7") {
		t.Error(got)
	}
}
