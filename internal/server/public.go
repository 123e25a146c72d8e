package server

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// publicAddress is the address for passive clients of a server behind a NAT. The address of a name may change, so run looks it up regularly; after a
// failure the last address stays.
type publicAddress struct {
	log    *slog.Logger
	lookUp func(ctx context.Context, network, host string) ([]netip.Addr, error) // net.Resolver.LookupNetIP

	mu      sync.Mutex
	name    string // "": no address
	address netip.Addr
}

const (
	lookUpEvery  = 30 * time.Second
	lookUpWithin = 3 * time.Second
)

func newPublicAddress(log *slog.Logger) *publicAddress {
	return &publicAddress{log: log, lookUp: net.DefaultResolver.LookupNetIP}
}

// setName sets the name, an address or "". If it has changed, setName looks it up before it returns, within lookUpWithin, so that the first client gets the
// right address.
func (p *publicAddress) setName(ctx context.Context, name string) {
	p.mu.Lock()
	same := p.name == name
	if p.name = name; name == "" {
		p.address = netip.Addr{}
	}
	p.mu.Unlock()
	if !same {
		p.refresh(ctx)
	}
}

// get is driver.Settings.PublicAddress. It does not wait. Before the first answer it returns the zero Addr.
func (p *publicAddress) get() netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address
}

// run looks the name up until ctx ends.
func (p *publicAddress) run(ctx context.Context) error {
	for {
		select {
		case <-time.After(lookUpEvery):
			p.refresh(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// refresh looks the name up, if there is one. An IP address resolves to itself.
func (p *publicAddress) refresh(ctx context.Context) {
	p.mu.Lock()
	name := p.name
	p.mu.Unlock()
	if name == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpWithin)
	defer cancel()
	found, err := p.lookUp(ctx, "ip4", name)

	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.name != name: // a reload has changed it in between
	case err != nil || len(found) == 0:
		p.log.Warn("could not look up ftp.public_address", "name", name, "err", err, "using", p.address)
	case !slices.Contains(found, p.address): // name servers change the order of several addresses
		p.address = found[0]
		p.log.Info("ftp.public_address", "name", name, "address", found[0])
	}
}
