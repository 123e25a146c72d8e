//go:build linux

package clients

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/integration/peers"
)

// binary is the built ftplockd.
var binary string

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, "8", func(dir string) error {
		binary = filepath.Join(dir, "ftplockd")
		return harness.Build("../../cmd/ftplockd", binary)
	}))
}

// way is how a client connects and transfers.
type way struct {
	plain    bool // without TLS; the first three of the fields below are for TLS, the last two for plain connections
	implicit bool
	version  string // of TLS: "1.2" or "1.3"
	reuse    bool   // the server requires that data connections resume the session
	passive  bool
	v6       bool
	ascii    bool
}

func (w way) String() string {
	mode := choose(w.passive, "passive", "active")
	if w.plain {
		return fmt.Sprintf("plain, %s, %s, %s", choose(w.v6, "IPv6", "IPv4"), choose(w.ascii, "ASCII", "binary"), mode)
	}
	return fmt.Sprintf("%s TLS %s, session reuse %s, %s", choose(w.implicit, "implicit", "explicit"), w.version, choose(w.reuse, "required", "off"), mode)
}

func choose(on bool, yes, no string) string {
	if on {
		return yes
	}
	return no
}

// ways returns the eight without TLS and the sixteen with it.
func ways() (all []way) {
	for i := range 8 {
		all = append(all, way{plain: true, v6: i&1 != 0, ascii: i&2 != 0, passive: i&4 == 0})
	}
	for i := range 16 {
		all = append(all, way{implicit: i&1 != 0, version: choose(i&2 != 0, "1.2", "1.3"), reuse: i&4 != 0, passive: i&8 == 0})
	}
	return all
}

// job is one run of a client. Its directory has the files "one" and "two". The client takes mine_lock, and is refused taken_lock. It
// uploads one as "file", replaces it by two, uploads one as "gone", downloads "file" as "down", lists, renames "gone" to "kept" if the client can,
// deletes that and releases the lock.
type job struct {
	way
	host, port string
	dir        string // the client's own
	ca         string // the server's certificate
}

func (j job) url(scheme string) string { return scheme + "://" + net.JoinHostPort(j.host, j.port) }

// environment is what the programs in testdata read.
func (j job) environment() []string {
	return append(harness.Environment(), "FTP_HOST="+j.host, "FTP_PORT="+j.port, "FTP_USER="+harness.Account, "FTP_PASSWORD="+harness.Password, "FTP_CA="+j.ca,
		"FTP_IMPLICIT="+choose(j.implicit, "1", ""), "FTP_VERSION="+j.version, "FTP_PASSIVE="+choose(j.passive, "1", "0"),
		"FTP_TLS="+choose(j.plain, "", "1"), "FTP_TYPE="+choose(j.ascii, "A", "I"), "HOME="+j.dir)
}

// run executes a command in the job's directory, and returns what it prints.
func (j job) run(t testing.TB, env []string, line ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "timeout", append([]string{"60"}, line...)...)
	cmd.Dir, cmd.Env = j.dir, append(j.environment(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// output runs a command once for all jobs, and returns what it prints.
func output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), err
}

// must is run for a command that has to succeed.
func (j job) must(t testing.TB, env []string, line ...string) string {
	t.Helper()
	out, err := j.run(t, env, line...)
	if err != nil {
		t.Fatalf("%s: %v: %s", line[0], err, out)
	}
	return out
}

// does is what a client is able to do at all.
type does int

const (
	transfers does = 1 << iota // uploads and replaces
	downloads
	lists
	deletes
	locks // takes and releases locks, and reports why one was refused
	all   = transfers | downloads | lists | deletes | locks
)

// client is a real client.
type client struct {
	name     string
	programs []string
	does     does
	// cannot returns the reason for which the client cannot connect in this way, or "".
	cannot func(way) string
	// do does the job, and returns what the client printed.
	do func(t testing.TB, j job) string
	// crlf: the client does not convert line ends itself, so its local file has those of the network.
	crlf bool
}

// TestEveryClientLocksAndTransfers does the job of every client in every way that it is able to use. docs/clients.md has the settings.
func TestEveryClientLocksAndTransfers(t *testing.T) {
	t.Parallel()
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			harness.Need(t, c.programs...)
			made, err := peers.MakeCertificate(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, reuse := range []bool{false, true} {
				s := start(t, made, reuse)
				for _, w := range ways() {
					if w.reuse != reuse || c.cannot != nil && c.cannot(w) != "" {
						continue
					}
					if !t.Run(w.String(), func(t *testing.T) { s.try(t, c, w) }) {
						s = start(t, made, reuse) // without the locks that a failure leaves behind
					}
				}
			}
		})
	}
}

// server is a server with a lock that another client holds.
type server struct {
	*peers.Process
	v4, v6, implicit string // addresses; the implicit one is of IPv4
	ca               string
}

func start(t testing.TB, made peers.Certificate, reuse bool) *server {
	t.Helper()
	dir, root, err := peers.Work(t.TempDir(), "ftplockd")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "ftplockd.toml")
	write(t, config, []byte(fmt.Sprintf(`
listen = ["127.0.0.1:0", "[::1]:0"]
root = %q
state = %q
[tls]
mode = "optional"
certificate = %q
key = %q
implicit_listen = ["127.0.0.1:0", "[::1]:0"]
session_reuse = %q
[[lock]]
match = "/*_lock"
`, root, filepath.Join(dir, "state"), made.Certificate, made.Key, choose(reuse, "required", "off"))+harness.Accounts()))
	p := &peers.Process{Cmd: exec.Command(binary, "--config", config, "--log-level", "error"), Root: root}
	p.Cmd.Env = append(harness.Environment(), "GORACE=atexit_sleep_ms=0")
	if _, err := p.LaunchAndRead("ftplockd listens on "); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop() })
	s := &server{Process: p, ca: made.Certificate}
	addresses := strings.Split(p.Address, ", ")
	s.v4, s.v6, s.implicit = addresses[0], addresses[1], addresses[2]
	holder, err := harness.Login(nil, s.v4, "other", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Ask("MKD /taken_lock"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Conn.Close() })
	return s
}

// try does the job in one way, and checks what the client saw and what it left on the server.
func (s *server) try(t *testing.T, c client, w way) {
	j := job{way: w, dir: t.TempDir(), ca: s.ca}
	address, relay := choose(w.v6, s.v6, s.v4), (*relay)(nil)
	if !w.plain {
		relay = newRelay(t, choose(w.implicit, s.implicit, s.v4))
		address = relay.address
	}
	j.host, j.port, _ = net.SplitHostPort(address)
	local, stored := content(w, c.crlf)
	write(t, filepath.Join(j.dir, "one"), bytes.Repeat([]byte("one\n"), 30_000))
	write(t, filepath.Join(j.dir, "two"), local)
	if c.does&transfers == 0 {
		write(t, filepath.Join(s.Root, "file"), stored)
	}
	out := c.do(t, j)
	if t.Failed() {
		return
	}
	if w.plain {
		// There is no version.
	} else if seen := relay.seen(); !slices.Equal(seen, []string{w.version}) {
		t.Errorf("the connections had the versions %v of TLS", seen)
	}
	if c.does&locks != 0 && !strings.Contains(out, "held by other@127.0.0.1") {
		t.Errorf("the reason for the refusal is missing: %s", out)
	}
	if c.does&lists != 0 && !strings.Contains(out, "file") {
		t.Errorf("the list has no file: %s", out)
	}
	if got := read(t, filepath.Join(s.Root, "file")); !bytes.Equal(got, stored) {
		t.Errorf("the server has %d bytes, want %d", len(got), len(stored))
	}
	if c.does&downloads != 0 {
		if got := read(t, filepath.Join(j.dir, "down")); !bytes.Equal(got, local) {
			t.Errorf("%d bytes came back, want %d", len(got), len(local))
		}
	}
	left, err := os.ReadDir(s.Root)
	if err != nil {
		t.Fatal(err)
	}
	left = slices.DeleteFunc(left, func(e os.DirEntry) bool {
		return slices.Contains([]string{"pub", "file", "taken_lock", ".git-ftp.log"}, e.Name())
	})
	if len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	for _, name := range []string{"file", ".git-ftp.log"} {
		_ = os.Remove(filepath.Join(s.Root, name))
	}
}

// content is what a client uploads, and what it is then on the server. Under TLS it is the same in ASCII and binary.
func content(w way, crlf bool) (local, stored []byte) {
	switch {
	case !w.plain:
		stored = bytes.Repeat([]byte("two\n"), 20_000)
	case w.ascii:
		for i := range 5_000 {
			stored = fmt.Appendf(stored, "%d\tK\xf6ln\t+49 221 %d\n", i, i*7919)
		}
	default:
		for i := range 60_000 {
			stored = append(stored, byte(i), byte(i>>8), '\r', '\n')
		}
	}
	if w.ascii && crlf {
		return bytes.ReplaceAll(stored, []byte("\n"), []byte("\r\n")), stored
	}
	return stored, stored
}

func write(t testing.TB, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return content
}
