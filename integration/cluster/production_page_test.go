//go:build linux

package cluster

import (
	"path/filepath"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// TestTheProductionPage executes the commands of docs/production.md on a server and a client. testdata/production has stand-ins for certbot and
// journalctl.
func TestTheProductionPage(t *testing.T) {
	t.Parallel()
	needNamespaces(t)
	harness.Need(t, "nft", "rsync")
	shared := machineFiles(t)
	command(t, "sh", "-c", "cp testdata/production/* "+shared+"/bin/")
	pem := filepath.Join(shared, "root")
	command(t, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=ftp.example.com",
		"-addext", "subjectAltName=DNS:ftp.example.com", "-keyout", filepath.Join(pem, "key.pem"), "-out", filepath.Join(pem, "ca.pem"))
	execute(t, "production", 9, shared, []string{"ftp", "client"}, func(done int, machines map[string]*machine) {
		if done != 1 {
			return
		}
		// systemd would start the service at the installation, and DNS would have the name.
		if out, err := machines["ftp"].run("systemctl start ftplockd"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if out, err := machines["client"].run("echo 10.0.0.1 ftp.example.com >>/etc/hosts; echo cacert=/root/ca.pem >/root/.curlrc"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
}
