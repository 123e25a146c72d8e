package integration

import (
	"os"
	"strings"
	"testing"
)

// reload has the server read its configuration again and returns what the command said.
func (s *server) reload() result {
	s.t.Helper()
	return run(s.t, binary, "reload", "--state", s.state)
}

// mustReload reloads. There may be warnings.
func (s *server) mustReload() {
	s.t.Helper()
	if r := s.reload(); r.status != 0 || !strings.HasSuffix(r.out, "reloaded\n") {
		s.t.Fatalf("reload: exit status %d: %s", r.status, r.out)
	}
}

func TestRenewedCertificateIsUsedWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, tlsTables(t, dir)+defaults)
	shown := func() string {
		return string(s.stranger().startTLS().PeerCertificates[0].Raw)
	}
	first := shown()
	tlsTables(t, dir) // another one
	s.mustReload()
	second := shown()
	if second == first {
		t.Error("after a reload it is the same")
	}
	if err := os.Remove(dir + "/key.pem"); err != nil {
		t.Fatal(err)
	}
	s.errorsExpected = true
	if r := s.reload(); r.status != 1 {
		t.Errorf("reload without a key: exit status %d: %s", r.status, r.out)
	}
	if shown() != second {
		t.Error("after a refused reload it is another one")
	}
}
