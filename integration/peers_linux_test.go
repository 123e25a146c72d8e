package integration

import (
	"os"
	"testing"

	"github.com/ftplockd/ftplockd/integration/peers"
)

// startPeer starts another FTP server, which is stopped at the end of the test. It is downloaded only where all clients and
// servers must be there.
func startPeer(t testing.TB, name string, tls bool) *peers.Process {
	t.Helper()
	peer, err := peers.Find(name)
	if err != nil && os.Getenv("FTPLOCKD_REQUIRE_CLIENTS") == "1" {
		peer, err = peers.Get(t.Context(), name)
	}
	if err != nil {
		missing(t, name+": "+err.Error())
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
