package main

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// publicAddress is what passive clients behind a NAT are told to connect to. A name is looked up again
// once a minute, since such addresses change; while that fails the last answer holds.
type publicAddress struct {
	name   string
	log    *slog.Logger
	lookUp func(ctx context.Context, network, host string) ([]netip.Addr, error) // net.Resolver.LookupNetIP

	mu    sync.Mutex
	last  netip.Addr
	asked time.Time
}

const (
	askEvery  = time.Minute
	askWithin = 3 * time.Second
)

// newPublicAddress returns driver.Settings.PublicAddress; nil for no name.
func newPublicAddress(name string, log *slog.Logger) func(context.Context) netip.Addr {
	if name == "" {
		return nil
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		return func(context.Context) netip.Addr { return addr }
	}
	return (&publicAddress{name: name, log: log, lookUp: net.DefaultResolver.LookupNetIP}).get
}

// get holds its mutex over the look-up: those who ask meanwhile want the same answer.
func (p *publicAddress) get(ctx context.Context) netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked.IsZero() && time.Since(p.asked) < askEvery {
		return p.last
	}
	p.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	found, err := p.lookUp(ctx, "ip4", p.name)
	if err != nil || len(found) == 0 {
		p.log.Warn("could not look up ftp.public_address", "name", p.name, "err", err, "using", p.last)
		return p.last
	}
	if p.last != found[0] {
		p.log.Info("ftp.public_address", "name", p.name, "address", found[0])
	}
	p.last = found[0]
	return p.last
}
