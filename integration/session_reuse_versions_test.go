package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// With session_reuse = "required" PHP and Ruby transfer several files under TLS 1.3. Under TLS 1.2 both, from their second transfer on, and
// curl are refused, as the comment in the configuration, docs/clients.md and the reply state.
func TestSessionReuseUnderEachVersionOfTLS(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl", "php", "ruby")
	s := startServer(t, defaults+tlsTables(t, t.TempDir())+"session_reuse = \"required\"\n")
	s.write("file", "content")
	old := filepath.Join(t.TempDir(), "openssl.cnf")
	writeFile(t, old, []byte("openssl_conf = a\n[a]\nssl_conf = b\n[b]\nsystem_default = c\n[c]\nMaxProtocol = TLSv1.2\n"))
	host, port := split(s.v4)
	const php = `$c = ftp_ssl_connect($argv[1], (int)$argv[2]); ftp_login($c, $argv[3], $argv[4]); ftp_pasv($c, true);
for ($i = 0; $i < 3; $i++) echo @ftp_get($c, $argv[5], "/file", FTP_BINARY) ? "got;" : "refused;" . error_get_last()["message"] . ";";`
	const ruby = `require "net/ftp"
host, port, user, password, to = ARGV
ftp = Net::FTP.new(host, port: port.to_i, username: user, password: password,
  ssl: {verify_mode: OpenSSL::SSL::VERIFY_NONE, max_version: ENV["OPENSSL_CONF"] && OpenSSL::SSL::TLS1_2_VERSION}) # its defaults override the file
3.times do
  ftp.getbinaryfile("/file", to)
  print "got;"
rescue StandardError => e
  print "refused;", e.message, ";"
end`
	for _, program := range [][]string{{"php", "-r", php}, {"ruby", "-e", ruby}} {
		for config, want := range map[string]string{"": "got;got;got;", old: "got;refused;"} {
			cmd := command(t, program[0], append(program[1:], host, port, account, password, filepath.Join(t.TempDir(), "got"))...)
			if config != "" {
				cmd.Env = append(cmd.Env, "OPENSSL_CONF="+config)
			}
			out, err := cmd.CombinedOutput()
			if !strings.HasPrefix(string(out), want) {
				t.Errorf("%s, %q: %s, %v; want %s", program[0], config, out, err, want)
			}
		}
	}
	if r := run(t, "curl", append(curlOptions(true), "-v", "--tls-max", "1.2", "ftp://"+s.v4+"/file")...); r.status == 0 || !strings.Contains(r.out, "alert") {
		t.Errorf("curl under TLS 1.2: %d, %s", r.status, r.out)
	}
	harness.Need(t, "lftp")
	got := filepath.Join(t.TempDir(), "lftp")
	mustRun(t, "lftp", "-c", "set ssl:priority NORMAL:-VERS-ALL:+VERS-TLS1.2; "+lftpOpen(s.v4, true)+"get file -o "+got+"1; get file -o "+got+"2; cls -1")
}
