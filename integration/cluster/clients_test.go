//go:build linux

package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// program runs a client for which the name ftp.test has the addresses, in this order. It ends the client after a time.
func program(t testing.TB, addresses []string, within time.Duration, line ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	var hosts []string
	for _, a := range addresses {
		host, _, _ := net.SplitHostPort(a)
		hosts = append(hosts, host)
	}
	cmd.Env = append(harness.Environment(), "ADDRESSES="+strings.Join(hosts, " "), "HOME="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

const findTables = `
[[lock]]
match = "**/*_lock"
max_age = "6m"
on_disconnect = "release"
`

// Clients with a name of two addresses find the active server, whichever address is first, before and after a failover.
func TestClientsFindTheActiveServer(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl", "python3", "curl")
	c := start(t, setup{tables: findTables})
	c.write(t, "phone.tsv", []byte("anna\t1\n"))
	for _, failover := range []func(*server){nil, (*server).kill} {
		if failover != nil {
			failover(c.active(t))
		}
		a := c.active(t)
		b := c.others(a)[0]
		for _, addresses := range [][]string{{a.address, b.address}, {b.address, a.address}} {
			c.runClients(t, addresses)
		}
	}
}

// runClients checks that clients for which a name has the two addresses, in this order, find the server that serves.
func (c *cluster) runClients(t *testing.T, addresses []string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(addresses[0])
	other, _, _ := net.SplitHostPort(addresses[1])
	for _, line := range [][]string{
		{"perl", "-Itestdata", "-MTwoAddresses", "testdata/find.pl", "ftp.test", port, account, password, "/perl_lock"},
		{"python3", "testdata/find.py", "ftp.test", port, account, password, "/python_lock"},
		{"curl", "-sS", "--resolve", fmt.Sprintf("ftp.test:%s:%s,%s", port, host, other), "-u", account + ":" + password,
			"-Q", "MKD /curl_lock", "-Q", "-RMD /curl_lock", "ftp://ftp.test:" + port + "/phone.tsv"},
	} {
		if out, err := program(t, addresses, patience, line...); err != nil || line[0] == "curl" && out != "anna\t1\n" {
			t.Errorf("%s, addresses %v: %v %s", line[0], addresses, err, out)
		}
	}
}

// The article's uploader, started again and again as by cron, continues after a failover. Each uploaded file is complete, and a run that was cut off
// leaves no lock.
func TestTheArticlesUploaderGoesOnOverAFailover(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	c := start(t, setup{tables: findTables})
	c.write(t, "data/phone.tsv", []byte("old\n"))
	list := filepath.Join(t.TempDir(), "phone.tsv")
	done := 0
	upload := func() {
		if err := os.WriteFile(list, harness.HistoryText(done+1), 0o644); err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(c.servers[0].address)
		// Without its connection the uploader would try forever.
		if out, err := program(t, c.addresses(), 20*time.Second, "perl", "-Itestdata", "-MTwoAddresses",
			"../testdata/article/uploader.pl", "ftp.test", port, account, password, list, "0.02"); err != nil {
			t.Logf("a run was cut off: %v %s", err, out)
			return
		}
		done++
		got, err := os.ReadFile(filepath.Join(c.root, "data/phone.tsv"))
		if err != nil || string(got) != string(harness.HistoryText(done)) {
			t.Fatalf("uploaded %d, got %d bytes: %.40q, %v", done, len(got), got, err)
		}
	}
	for _, failover := range []func(*server){nil, (*server).kill, (*server).terminate} {
		if failover != nil {
			a := c.active(t)
			failed := make(chan struct{})
			time.AfterFunc(100*time.Millisecond, func() { // at a random moment of a run
				defer close(failed)
				failover(a)
			})
			for ended := false; !ended; upload() {
				select {
				case <-failed:
					ended = true
				default:
				}
			}
			a.resume()
		}
		for end, want := time.Now().Add(2*patience), done+3; done < want; upload() {
			if time.Now().After(end) {
				t.Fatal("the uploader does not succeed")
			}
		}
	}
}
