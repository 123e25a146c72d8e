package integration

import (
	"os"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/integration/peers"
	"github.com/ftplockd/ftplockd/locksmith"
)

// startPeer starts another FTP server. The end of the test stops it. It is downloaded only if FTPLOCKD_REQUIRE_CLIENTS is 1.
func startPeer(t testing.TB, name string, tls bool) *peers.Process {
	t.Helper()
	peer, err := peers.Find(name)
	if err != nil && os.Getenv("FTPLOCKD_REQUIRE_CLIENTS") == "1" {
		peer, err = peers.Get(t.Context(), name)
	}
	if err != nil {
		harness.Missing(t, name+": "+err.Error())
	}
	dir, err := os.MkdirTemp("", "ftplockd-peer-") // all above it must be open to the account that serves, as t.TempDir is not
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var cert peers.Certificate
	if tls {
		if cert, err = peers.MakeCertificate(dir); err != nil {
			t.Fatal(err)
		}
	}
	running, err := peer.Start(dir, cert)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(); err != nil {
			t.Error(err)
		}
	})
	return running
}

// others returns functions that start the other servers.
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
		config: locksmith.Config{Address: p.Address, User: p.User, Password: p.Password, Timeout: 10 * time.Second},
		dir:    "/pub", root: p.Root,
	}
}
