package integration

import (
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/peers"
	"github.com/ftplockd/ftplockd/locksmith"
)

// others starts the servers of others that are on this machine.
func others() map[string]func(t *testing.T, secure bool) host {
	all := make(map[string]func(t *testing.T, secure bool) host)
	for _, name := range peers.Names() {
		all[name] = func(t *testing.T, secure bool) host { return startHost(t, name, secure) }
	}
	return all
}

func startHost(t *testing.T, name string, secure bool) host {
	t.Helper()
	p := startPeer(t, name, secure)
	return host{
		server: locksmith.Server{Address: p.Address, User: p.User, Password: p.Password, Timeout: 10 * time.Second},
		dir:    "/pub", root: p.Root,
	}
}
