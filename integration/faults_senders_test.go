package integration

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// upload is a task of an uploader.
type upload struct {
	s          *server
	kind, path string // A or I, and where to
	tls        bool
}

func (u upload) login() []string {
	host, port := split(u.s.v4)
	return []string{host, port, account, password}
}

// uploader is a client that uploads its standard input.
type uploader struct {
	name    string
	need    string // the program, "" for none
	secure  bool   // it does so under TLS
	command func(t testing.TB, u upload) *exec.Cmd
}

// scriptUpload runs a program of testdata. The environment selects TLS.
func scriptUpload(interpreter, script string, more ...string) func(testing.TB, upload) *exec.Cmd {
	return func(t testing.TB, u upload) *exec.Cmd {
		cmd := command(t, interpreter, slices.Concat([]string{"testdata/clients/" + script}, u.login(), []string{u.kind, u.path}, more)...)
		if u.tls {
			cmd.Env = append(cmd.Env, "FTP_TLS=1")
		}
		return cmd
	}
}

// lftpOpen returns lftp's commands that open a session.
func lftpOpen(address string, tls bool) string {
	open := "set net:max-retries 1; set net:timeout 20; set cmd:fail-exit yes; set ssl:verify-certificate no; set ftp:ssl-protect-data yes; "
	if tls {
		open += "set ftp:ssl-force yes; "
	} else {
		open += "set ftp:ssl-allow no; "
	}
	return open + "open -u " + account + "," + password + " ftp://" + address + "; "
}

// curlOptions returns the options of curl for a session.
func curlOptions(tls bool) []string {
	options := []string{"-sS", "-k", "-u", account + ":" + password}
	if tls {
		options = append(options, "--ssl-reqd")
	}
	return options
}

// senders are all clients that upload their standard input.
var senders = []uploader{
	{name: "Net::FTP", need: "perl", command: scriptUpload("perl", "put.pl")},
	{name: "ftplib", need: "python3", command: scriptUpload("python3", "put.py")},
	{name: "PHP", need: "php", command: scriptUpload("php", "send.php")},
	{name: "curl", need: "curl", command: func(t testing.TB, u upload) *exec.Cmd {
		args := append(curlOptions(u.tls), "-T", "-", "ftp://"+u.s.v4+u.path)
		if u.kind == "A" {
			args = append(args, "--use-ascii")
		}
		return command(t, "curl", args...)
	}},
	{name: "lftp", need: "lftp", command: func(t testing.TB, u upload) *exec.Cmd {
		put := map[string]string{"A": "put -a ", "I": "put "}[u.kind]
		return command(t, "lftp", "-c", lftpOpen(u.s.v4, u.tls)+put+"/dev/stdin -o "+u.path)
	}},
	{name: "jlaffaye", command: func(t testing.TB, u upload) *exec.Cmd {
		self := goChild(t, "put", append(u.login(), u.kind, u.path)...)
		return command(t, self[0], self[1:]...)
	}},
	{name: "ncftp", need: "ncftpput", command: func(t testing.TB, u upload) *exec.Cmd {
		host, port := split(u.s.v4)
		args := []string{"-u", account, "-p", password, "-P", port, "-t", "20", "-F"}
		if u.kind == "A" {
			args = append(args, "-a")
		}
		return command(t, "ncftpput", append(args, "-c", host, u.path)...)
	}},
	{name: "tnftp", need: "tnftp", command: tnftpSend},
}

// secureSenders returns the senders that support TLS.
func secureSenders() (all []uploader) {
	for _, u := range senders[:5] {
		u.name += " under TLS"
		u.secure = true
		all = append(all, u)
	}
	return all
}

// sender returns the sender with a name.
func sender(name string) uploader {
	return senders[slices.IndexFunc(senders, func(u uploader) bool { return u.name == name })]
}

// tnftpSend runs tnftp with commands from a file, and uploads the standard input. The program between them inherits the control connection, and closes
// it, so that the connection ends when tnftp is killed.
func tnftpSend(t testing.TB, u upload) *exec.Cmd {
	host, port := split(u.s.v4)
	how := map[string]string{"A": "ascii", "I": "binary"}[u.kind]
	commands := filepath.Join(t.TempDir(), "commands")
	text := fmt.Sprintf("user %s %s\npassive on\n%s\nput \"|exec 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec cat <&3\" %s\nquit\n", account, password, how, u.path)
	if err := os.WriteFile(commands, []byte(text), 0o600); err != nil {
		t.Error(err)
	}
	return command(t, "sh", "-c", `exec 3<&0 <"$0"; exec tnftp "$@"`, commands, "-i", "-n", "-v", "-q", "20", host, port)
}

// sending is a client during an endless upload.
type sending struct {
	*program
	t    testing.TB
	s    *server
	path string             // of its target, which held "old" before
	out  *harness.LogBuffer // what it says
	fed  chan struct{}      // closed when it takes nothing more

	lingers bool // it does not end at once: lftp tries again after half a minute
}

// send starts an endless upload to a file with the content "old" in a directory of its own. send returns when so many bytes are on disk.
func (s *server) send(t testing.TB, u uploader, kind string, arrived int64) *sending {
	t.Helper()
	if u.need != "" {
		harness.Need(t, u.need)
	}
	c := s.launch(t, u, kind)
	harness.Await(t, "bytes arrive", func() bool {
		if c.hasEnded() {
			t.Fatalf("%s ended: %v\n%s\n%s", u.name, c.cmd.ProcessState, c.out, s.log)
		}
		return c.arrived() > arrived
	})
	return c
}

// launch is send without the waiting.
func (s *server) launch(t testing.TB, u uploader, kind string) *sending {
	t.Helper()
	dir, err := os.MkdirTemp(s.root, "cell-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &sending{t: t, s: s, path: "/" + filepath.Base(dir) + "/target", out: harness.NewLogBuffer(), fed: make(chan struct{})}
	harness.Await(t, "the disk has space for the old file", func() bool { return os.WriteFile(s.path(c.path), []byte("old"), 0o644) == nil }) // others fill it
	cmd := u.command(t, upload{s, kind, c.path, u.secure})
	cmd.Env = append(cmd.Env, "FTP_PASSIVE=1") // for Net::FTP, which would take its word from the machine's libnet.cfg
	cmd.Stdout, cmd.Stderr = c.out, c.out
	c.lingers = strings.HasPrefix(u.name, "lftp")
	c.program = started(t, cmd)
	go feed(c.to, c.fed)
	t.Cleanup(func() {
		c.kill()
		<-c.fed
	})
	return c
}

// feed writes lines until the reader is gone: half a megabyte at once, and the rest slowly.
func feed(to io.Writer, fed chan<- struct{}) {
	defer close(fed)
	lines := bytes.Repeat([]byte("what is uploaded\n"), 500)
	for i := 0; ; i++ {
		if _, err := to.Write(lines); err != nil {
			return
		}
		if i > 60 {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// temporaries returns the temporary files of the upload.
func (c *sending) temporaries() []string {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(c.s.path(c.path)), ".ftplockd-*"))
	if err != nil {
		c.t.Error(err)
	}
	return found
}

// arrived returns how many bytes of the upload are on disk.
func (c *sending) arrived() int64 {
	for _, file := range c.temporaries() {
		if info, err := os.Stat(file); err == nil {
			return info.Size()
		}
	}
	return -1
}

// untouched checks that the old file is unchanged, and alone in its directory.
func (c *sending) untouched() {
	c.t.Helper()
	harness.Await(c.t, "the temporary goes", func() bool { return len(c.temporaries()) == 0 })
	if got := c.s.read(c.path); got != "old" {
		c.t.Errorf("published %d bytes", len(got))
	}
	if entries, err := os.ReadDir(filepath.Dir(c.s.path(c.path))); err != nil || len(entries) != 1 {
		c.t.Errorf("left over: %v, %v", entries, err)
	}
}

// discarded checks that the old file is untouched, and that the log has the reason. It returns the number of received bytes from the log.
func (c *sending) discarded(why string) (received int64) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the client said:\n%s", c.out)
		}
	}()
	c.s.log.Await(c.t, `msg="upload discarded" path=`+c.path+" bytes=", 1)
	c.untouched()
	m := regexp.MustCompile(`level=WARN msg="upload discarded" path=` + c.path + ` bytes=(\d+) reason=(.*) session=`).FindStringSubmatch(c.s.log.String())
	if m == nil {
		c.t.Errorf("the log does not say what became of %s", c.path)
		return 0
	}
	if !regexp.MustCompile(why).MatchString(m[2]) {
		c.t.Errorf("discarded because of %s, want %s", m[2], why)
	}
	received, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		c.t.Error(err)
	}
	return received
}

var refusal = regexp.MustCompile(`(?m)(^|\D)4(21|26|51|52)[ -]`)

// complains checks that the client ends and reports a failure, by its exit status or by showing the reply, as tnftp does.
func (c *sending) complains() {
	c.t.Helper()
	if c.lingers {
		c.kill() // it has not taken its upload for done, unless it had ended before
	}
	c.exit(c.t)
	out := c.out.String()
	if c.cmd.ProcessState.Success() && !refusal.MatchString(out) && !strings.Contains(out, "421 Service not available") {
		c.t.Errorf("the client takes its upload for done:\n%s", out)
	}
	if strings.Contains(out, c.s.root) || strings.Contains(out, c.s.state) {
		c.t.Errorf("told where files lie:\n%s", out)
	}
}
