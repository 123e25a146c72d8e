package integration

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// The data connection that waits in a passive port survives the refusal of its transfer, and serves the next one.
func TestARefusedTransferLeavesTheDataConnection(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	s.session("other").Want(257, "MKD /locks/job")
	c := s.session(account)
	c.Want(200, "TYPE I")
	for _, line := range []string{"RETR /missing", "STOR /missing/file", "STOR /locks/job", "APPE /locks/job/file", "MLSD /missing"} {
		port, err := c.EPSV()
		if err != nil {
			t.Fatal(err)
		}
		host, _ := split(s.v4)
		data, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port)), patience)
		if err != nil {
			t.Fatal(err)
		}
		defer data.Close()
		c.Want(550, line)
		c.Want(200, "NOOP")
		_ = data.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // a reset would have come
		if _, err := data.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the data connection: %v", line, err)
		}
		c.Want(150, "STOR /file")
		_, _ = data.Write([]byte(line))
		data.Close()
		c.WantReply(226)
		s.wantFile(t, "file", line)
	}
}

// nodePath is where packages of npm are installed; the test is skipped without node or the package.
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

// basic-ftp connects before it sends RETR. A reset of that connection would end its session in place of the 550.
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
