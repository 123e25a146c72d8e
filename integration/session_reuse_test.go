package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// Clients that resume the TLS session of their control connection for their data connections work with session_reuse = "required";
// one that does not is told so, and nothing is sent or stored.
func TestClientsResumeTheirTLSSession(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	harness.Need(t, "lftp")
	s := startServer(t, defaults+tlsTables(t, t.TempDir())+"session_reuse = \"required\"\n")
	dir := t.TempDir()
	up, down := filepath.Join(dir, "up"), filepath.Join(dir, "down")
	content := strings.Repeat("some text\n", 50_000)
	writeFile(t, up, []byte(content))
	check := func(name string) {
		t.Helper()
		got, err := os.ReadFile(down)
		if string(got) != content || err != nil {
			t.Errorf("%s: %d bytes came back, %v", name, len(got), err)
		}
		_ = os.Remove(down)
	}
	url := "ftp://" + s.v4 + "/"
	for range 3 {
		mustRun(t, "curl", append(curlOptions(true), "-T", up, url+"curl1", "-T", up, url+"curl2")...)
		mustRun(t, "curl", append(curlOptions(true), "-o", down, url+"curl2")...)
		check("curl")
		mustRun(t, "lftp", "-c", lftpOpen(s.v4, true)+"put "+up+" -o lftp1; put "+up+" -o lftp2; cls -1; get lftp2 -o "+down)
		check("lftp")
	}
	r := run(t, "python3", "-c", `
import ftplib, io, ssl, sys
context = ssl._create_unverified_context()
ftp = ftplib.FTP_TLS(context=context)
host, port = sys.argv[1].rsplit(":", 1)
ftp.connect(host, int(port))
ftp.login(sys.argv[2], sys.argv[3])
ftp.prot_p()
ftp.storbinary("STOR python", io.BytesIO(b"x" * 1000))
`, s.v4, account, password)
	if r.status == 0 || s.exists("python") {
		t.Errorf("an upload without the session: status %d, %s", r.status, r.out)
	}
}
