package integration

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// nodePath returns the variable with the path of packages of npm. It skips the test without node or the package.
func nodePath(t *testing.T, name string) string {
	t.Helper()
	harness.Need(t, "node", "npm")
	root, err := exec.Command("npm", "root", "--global").Output()
	if err != nil {
		t.Fatal(err)
	}
	path := "NODE_PATH=" + os.Getenv("NODE_PATH") + ":" + strings.TrimSpace(string(root))
	look := exec.Command("node", "-e", "require("+strconv.Quote(name)+")")
	look.Env = append(os.Environ(), path)
	if err := look.Run(); err != nil {
		harness.Missing(t, "npm's package "+name+" is not installed")
	}
	return path
}

// TestBasicFtpReadsTheRefusalOfADownload: basic-ftp connects before it sends RETR. A reset of that connection would end its session before the 550.
func TestBasicFtpReadsTheRefusalOfADownload(t *testing.T) {
	t.Parallel()
	path := nodePath(t, "basic-ftp")
	s := startServer(t, defaults+tlsTables(t, t.TempDir()))
	host, port := split(s.v4)
	for _, tls := range []string{"plain", "tls"} {
		cmd := command(t, "node", "testdata/clients/refused.js", host, port, account, password, "100", tls)
		cmd.Env = append(cmd.Env, path)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", tls, err, out)
		}
	}
}
