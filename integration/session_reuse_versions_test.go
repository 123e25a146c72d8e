package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// With session_reuse = "required" PHP transfers several files under TLS 1.3. Under TLS 1.2 PHP, from its second transfer on, and curl are
// refused, as the comment in the configuration, docs/clients.md and the reply state.
func TestSessionReuseUnderEachVersionOfTLS(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl", "php")
	s := startServer(t, defaults+tlsTables(t, t.TempDir())+"session_reuse = \"required\"\n")
	s.write("file", "content")
	old := filepath.Join(t.TempDir(), "openssl.cnf")
	writeFile(t, old, []byte("openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\nMaxProtocol = TLSv1.2\n"))
	host, port := split(s.v4)
	const program = `$c = ftp_ssl_connect($argv[1], (int)$argv[2]); ftp_login($c, $argv[3], $argv[4]); ftp_pasv($c, true);
for ($i = 0; $i < 3; $i++) echo @ftp_get($c, $argv[5], "/file", FTP_BINARY) ? "got;" : "refused;" . error_get_last()["message"] . ";";`
	for config, want := range map[string]string{"": "got;got;got;", old: "got;refused;"} {
		cmd := command(t, "php", "-r", program, host, port, account, password, filepath.Join(t.TempDir(), "got"))
		cmd.Env = append(cmd.Env, "OPENSSL_CONF="+config)
		if config == "" {
			cmd.Env = cmd.Env[:len(cmd.Env)-1]
		}
		out, err := cmd.CombinedOutput()
		if !strings.HasPrefix(string(out), want) {
			t.Errorf("PHP, %q: %s, %v; want %s", config, out, err, want)
		}
	}
	if r := run(t, "curl", append(curlOptions(true), "-v", "--tls-max", "1.2", "ftp://"+s.v4+"/file")...); r.status == 0 || !strings.Contains(r.out, "alert") {
		t.Errorf("curl under TLS 1.2: %d, %s", r.status, r.out)
	}
	harness.Need(t, "lftp")
	got := filepath.Join(t.TempDir(), "lftp")
	mustRun(t, "lftp", "-c", "set ssl:priority NORMAL:-VERS-ALL:+VERS-TLS1.2; "+lftpOpen(s.v4, true)+"get file -o "+got+"1; get file -o "+got+"2; cls -1")
}
