package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// way is how a client speaks to the server.
type way struct {
	address string
	v6      bool
	passive bool
	ascii   bool
	tls     bool
}

func (w way) String() string {
	words := map[bool][4]string{
		false: {"IPv4", "active", "binary", "plain"},
		true:  {"IPv6", "passive", "ASCII", "TLS"},
	}
	return strings.Join([]string{words[w.v6][0], words[w.passive][1], words[w.ascii][2], words[w.tls][3]}, " ")
}

// flag is the environment's and most options' way of saying it.
func flagText(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// job is what a client is to do: take phone_lock in dir, see it refused, give it back; upload the file "up" of
// the local directory as "first", list it, download it as "down", rename it to "kept"; upload "gone" and delete it.
type job struct {
	way
	dir   string // on the server
	local string // on disk
}

func (j job) host() string { host, _ := split(j.address); return host }
func (j job) port() string { _, port := split(j.address); return port }
func (j job) lock() string { return j.dir + "/phone_lock" }

func (j job) environment() []string {
	kind := "I"
	if j.ascii {
		kind = "A"
	}
	tls := "" // what PHP and Perl take for no
	if j.tls {
		tls = "1"
	}
	return []string{
		"FTP_HOST=" + j.host(), "FTP_PORT=" + j.port(), "FTP_USER=" + account, "FTP_PASSWORD=" + password,
		"FTP_PASSIVE=" + flagText(j.passive), "FTP_TYPE=" + kind, "FTP_TLS=" + tls, "FTP_DIR=" + j.dir, "LOCAL=" + j.local,
	}
}

// client is a real client.
type client struct {
	name     string
	programs []string
	can      func(way) bool // nil: everything
	// do does the job. It returns how the client was told that the lock is held, or "" if it does not say.
	do func(t *testing.T, j job) string
	// crlf: it does not convert line ends itself, so its local file has those of the network.
	crlf bool
}

// script is a client that is a program in testdata/clients.
func script(interpreter, file string) func(*testing.T, job) string {
	return func(t *testing.T, j job) string {
		cmd := command(t, interpreter, filepath.Join("testdata", "clients", file))
		cmd.Env = append(cmd.Env, j.environment()...)
		r := finish(t, cmd)
		if r.status != 0 {
			t.Fatalf("exit status %d\n%s", r.status, r.out)
		}
		_, why, _ := strings.Cut(r.out, "refused: ")
		return why
	}
}

var clients = []client{
	{name: "Net::FTP", programs: []string{"perl"}, do: script("perl", "netftp.pl")},
	{name: "ftplib", programs: []string{"python3"}, do: script("python3", "ftplib_client.py")},
	{name: "PHP", programs: []string{"php"}, do: script("php", "client.php")},
	{name: "curl", programs: []string{"curl"}, do: curlJob,
		// curl before 8.0 sends plain bytes on active data connections after PROT P.
		can: func(w way) bool { return w.passive || !w.tls }},
	{name: "lftp", programs: []string{"lftp"}, do: lftpJob,
		// lftp 4.9 says EPRT |2|::|, is refused, and goes on in passive mode half a minute later.
		can: func(w way) bool { return w.passive || !w.v6 }},
	{name: "ncftp", programs: []string{"ncftpget", "ncftpput", "ncftpls"}, do: ncftpJob,
		can: func(w way) bool { return !w.tls && !w.v6 }},
	{name: "tnftp", programs: []string{"tnftp"}, do: tnftpJob, can: func(w way) bool { return !w.tls }},
	{name: "jlaffaye", do: jlaffayeJob, crlf: true, can: func(w way) bool { return w.passive }},
}

// ways are all combinations that a client can be asked for; each value of each aspect is in several.
func ways(s *server) []way {
	var all []way
	for i := range 16 {
		w := way{v6: i&1 != 0, passive: i&2 != 0, ascii: i&4 != 0, tls: i&8 != 0, address: s.v4}
		if w.v6 {
			w.address = s.v6
		}
		// TLS is the same for all of the others: two ways will do.
		if !w.tls || w.v6 != w.passive && w.passive != w.ascii {
			all = append(all, w)
		}
	}
	return all
}

func TestEveryClientLocksAndTransfers(t *testing.T) {
	t.Parallel()
	s := startServer(t, tlsTables(t, t.TempDir())+defaults)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			harness.Need(t, c.programs...)
			for _, w := range ways(s) {
				if c.can == nil || c.can(w) {
					t.Run(w.String(), func(t *testing.T) { doJob(t, s, c, w) })
				}
			}
		})
	}
}

func doJob(t *testing.T, s *server, c client, w way) {
	j := job{way: w, dir: "/" + strings.ReplaceAll(c.name+" "+w.String(), " ", "-"), local: t.TempDir()}
	j.dir = strings.ReplaceAll(j.dir, "::", "-")
	if err := os.Mkdir(s.path(j.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	up, stored := content(w.ascii, c.crlf)
	writeFile(t, filepath.Join(j.local, "up"), up)
	if why := c.do(t, j); why != "" && !strings.Contains(why, "held by "+account+"@") {
		t.Errorf("told %q, which does not say who holds it", why)
	}
	if got := []byte(s.read(j.dir + "/kept")); !bytes.Equal(got, stored) {
		t.Errorf("stored %d bytes, want %d: %s", len(got), len(stored), firstDifference(got, stored))
	}
	down, err := os.ReadFile(filepath.Join(j.local, "down"))
	if err != nil || !bytes.Equal(down, up) {
		t.Errorf("got back %d bytes, want %d: %s (%v)", len(down), len(up), firstDifference(down, up), err)
	}
	entries, err := os.ReadDir(s.path(j.dir))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("left over: %v", entries)
	}
}

// content is what a client uploads, and what it is then on the server.
func content(ascii, crlf bool) (up, stored []byte) {
	if !ascii {
		for i := range 100_000 {
			up = append(up, byte(i), byte(i>>8), '\r', '\n')
		}
		return up, up
	}
	for i := range 5_000 {
		stored = fmt.Appendf(stored, "%d\tK\xf6ln\t+49 221 %d\n", i, i*7919)
	}
	if !crlf {
		return stored, stored
	}
	return bytes.ReplaceAll(stored, []byte("\n"), []byte("\r\n")), stored
}

func firstDifference(a, b []byte) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("at %d %q, want %q", i, a[i:min(i+20, len(a))], b[i:min(i+20, len(b))])
		}
	}
	return "one is the beginning of the other"
}

// ncftp's own mkdir hides that a directory was there already, so its user says MKD as a raw command.
func ncftpJob(t *testing.T, j job) string {
	options := []string{"-u", account, "-p", password, "-P", j.port(), "-t", "20"}
	if !j.passive {
		options = append(options, "-E")
	} else {
		options = append(options, "-F")
	}
	var kind []string
	if j.ascii {
		kind = []string{"-a"}
	}
	ls := func(args ...string) string { // with -Z its exit status means nothing
		return run(t, "ncftpls", slices.Concat(options, args, []string{"ftp://" + j.host() + j.dir + "/"})...).out
	}
	debug := func(command string) string { return ls("-d", "stdout", "-Z", "-W", command) }
	if log := debug("MKD " + j.lock()); !strings.Contains(log, "257") {
		t.Fatal("MKD:", log)
	}
	why := debug("MKD " + j.lock())
	if !strings.Contains(why, "550") {
		t.Fatal("second MKD:", why)
	}
	debug("RMD " + j.lock())

	up, down := filepath.Join(j.local, "up"), filepath.Join(j.local, "down")
	mustRun(t, "ncftpput", slices.Concat(options, kind, []string{"-C", j.host(), up, j.dir + "/first"})...)
	if list := ls("-1"); !strings.Contains(list, "first\n") {
		t.Fatal("ncftpls:", list)
	}
	mustRun(t, "ncftpget", slices.Concat(options, kind, []string{"-C", j.host(), j.dir + "/first", down})...)
	ls("-Z", "-W", "RNFR "+j.dir+"/first", "-W", "RNTO "+j.dir+"/kept")
	mustRun(t, "ncftpput", slices.Concat(options, kind, []string{"-C", j.host(), up, j.dir + "/gone"})...)
	ls("-Z", "-W", "DELE "+j.dir+"/gone")
	return why
}

func tnftpJob(t *testing.T, j job) string {
	mode, kind := "passive off", "binary"
	if j.passive {
		mode = "passive on"
	}
	if j.ascii {
		kind = "ascii"
	}
	talk := func(lines ...string) string {
		cmd := command(t, "tnftp", "-i", "-n", "-v", "-q", "20", j.host(), j.port())
		cmd.Dir = j.local
		cmd.Stdin = strings.NewReader(strings.Join(append([]string{"user " + account + " " + password, mode, kind}, lines...), "\n") + "\nquit\n")
		r := finish(t, cmd)
		return r.out
	}
	if log := talk("mkdir " + j.lock()); !strings.Contains(log, "257 ") {
		t.Fatal(log)
	}
	why := talk("mkdir " + j.lock())
	if !strings.Contains(why, "550 ") {
		t.Fatal(why)
	}
	log := talk("rmdir "+j.lock(), "cd "+j.dir, "put up first", "ls", "get first down",
		"rename first kept", "put up gone", "delete gone")
	if !strings.Contains(log, "250 "+j.lock()+" released") || !strings.Contains(log, " first") {
		t.Fatal(log)
	}
	return why
}
