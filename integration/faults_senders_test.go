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
	"syscall"
	"testing"
	"time"
)

// uploader is a client that uploads its standard input.
type uploader struct {
	name string
	need string // the program, "" for none
	// command is one upload of standard input to path.
	command func(t testing.TB, s *server, kind, path string) *exec.Cmd
	// clean uploads what is in the file so many times, to path.1, path.2 and so on, each in a session of its own.
	clean func(t testing.TB, s *server, file, path string, times int)
}

func scriptUpload(interpreter, script string) func(testing.TB, *server, string, string) *exec.Cmd {
	return func(t testing.TB, s *server, kind, path string) *exec.Cmd {
		host, port := split(s.v4)
		return command(t, interpreter, "testdata/clients/"+script, host, port, account, password, kind, path)
	}
}

func scriptClean(interpreter, script string) func(testing.TB, *server, string, string, int) {
	return func(t testing.TB, s *server, file, path string, times int) {
		host, port := split(s.v4)
		cmd := command(t, interpreter, "testdata/clients/"+script, host, port, account, password, "I", path, strconv.Itoa(times))
		in, err := os.Open(file)
		if err != nil {
			t.Error(err)
			return
		}
		defer in.Close()
		cmd.Stdin = in
		if r := finish(t, cmd); r.status != 0 {
			t.Errorf("exit status %d: %s", r.status, r.out)
		}
	}
}

// each runs a command for each of a number of uploads.
func each(line func(s *server, file, path string) []string) func(testing.TB, *server, string, string, int) {
	return func(t testing.TB, s *server, file, path string, times int) {
		for i := 1; i <= times; i++ {
			args := line(s, file, fmt.Sprintf("%s.%d", path, i))
			if r := run(t, args[0], args[1:]...); r.status != 0 {
				t.Errorf("upload %d: exit status %d: %s", i, r.status, r.out)
			}
		}
	}
}

func lftpOpen(s *server) string {
	return "set net:max-retries 1; set net:timeout 20; set cmd:fail-exit yes; set ftp:ssl-allow no; open -u " +
		account + "," + password + " ftp://" + s.v4 + "; "
}

// senders are all clients that upload their standard input.
var senders = []uploader{
	{"Net::FTP", "perl", scriptUpload("perl", "put.pl"), scriptClean("perl", "put.pl")},
	{"ftplib", "python3", scriptUpload("python3", "put.py"), scriptClean("python3", "put.py")},
	{"curl", "curl", func(t testing.TB, s *server, kind, path string) *exec.Cmd {
		args := []string{"-sS", "-u", account + ":" + password, "-T", "-", "ftp://" + s.v4 + path}
		if kind == "A" {
			args = append(args, "--use-ascii")
		}
		return command(t, "curl", args...)
	}, each(func(s *server, file, path string) []string {
		return []string{"curl", "-sS", "-u", account + ":" + password, "-T", file, "ftp://" + s.v4 + path}
	})},
	{"lftp", "lftp", func(t testing.TB, s *server, kind, path string) *exec.Cmd {
		put := "put "
		if kind == "A" {
			put = "put -a "
		}
		return command(t, "lftp", "-c", lftpOpen(s)+put+"/dev/stdin -o "+path)
	}, each(func(s *server, file, path string) []string {
		return []string{"lftp", "-c", lftpOpen(s) + "put " + file + " -o " + path}
	})},
	{"jlaffaye", "", func(t testing.TB, s *server, kind, path string) *exec.Cmd {
		host, port := split(s.v4)
		self := goChild(t, "put", host, port, account, password, kind, path)
		return command(t, self[0], self[1:]...)
	}, jlaffayeClean},
	{"PHP", "php", scriptUpload("php", "send.php"), each(func(s *server, file, path string) []string {
		host, port := split(s.v4)
		return []string{"sh", "-c", `exec "$@" <"$0"`, file, "php", "testdata/clients/send.php", host, port, account, password, "I", path}
	})},
	{"ncftp", "ncftpput", func(t testing.TB, s *server, kind, path string) *exec.Cmd {
		host, port := split(s.v4)
		args := []string{"-u", account, "-p", password, "-P", port, "-t", "20", "-F"}
		if kind == "A" {
			args = append(args, "-a")
		}
		return command(t, "ncftpput", append(args, "-c", host, path)...)
	}, each(func(s *server, file, path string) []string {
		host, port := split(s.v4)
		return []string{"ncftpput", "-u", account, "-p", password, "-P", port, "-t", "20", "-F", "-V", "-C", host, file, path}
	})},
	{"tnftp", "tnftp", tnftpSend, each(func(s *server, file, path string) []string {
		host, port := split(s.v4)
		text := fmt.Sprintf("user %s %s\npassive on\nbinary\nput %s %s\nquit\n", account, password, file, path)
		return []string{"sh", "-c", `printf "$0" | tnftp "$@"`, text, "-i", "-n", "-v", "-q", "20", host, port}
	})},
}

func jlaffayeClean(t testing.TB, s *server, file, path string, times int) {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	for i := 1; i <= times; i++ {
		c, err := jlaffayeDial(way{address: s.v4})
		if err != nil {
			t.Error(err)
			return
		}
		if err := c.Stor(fmt.Sprintf("%s.%d", path, i), bytes.NewReader(content)); err != nil {
			t.Errorf("upload %d: %v", i, err)
		}
		if err := c.Quit(); err != nil {
			t.Error(err)
		}
	}
}

// sender is the one of that name.
func sender(name string) uploader {
	return senders[slices.IndexFunc(senders, func(u uploader) bool { return u.name == name })]
}

// tnftpSend has tnftp take its commands from a file, and what it uploads from the standard input that it was started with.
// The program in between inherits its control connection, and must not keep that alive when tnftp is killed.
func tnftpSend(t testing.TB, s *server, kind, path string) *exec.Cmd {
	host, port := split(s.v4)
	how := map[string]string{"A": "ascii", "I": "binary"}[kind]
	commands := filepath.Join(t.TempDir(), "commands")
	text := fmt.Sprintf("user %s %s\npassive on\n%s\nput \"|exec 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec cat <&3\" %s\nquit\n", account, password, how, path)
	if err := os.WriteFile(commands, []byte(text), 0o600); err != nil {
		t.Error(err)
	}
	return command(t, "sh", "-c", `exec 3<&0 <"$0"; exec tnftp "$@"`, commands, "-i", "-n", "-v", "-q", "20", host, port)
}

// secureSenders are those that can do it under TLS; the environment asks the scripts for it.
var secureSenders = []uploader{
	{name: "Net::FTP", need: "perl", command: secureScript("perl", "send.pl")},
	{name: "ftplib", need: "python3", command: secureScript("python3", "send.py")},
	{name: "PHP", need: "php", command: secureScript("php", "send.php")},
	{name: "curl", need: "curl", command: func(t testing.TB, s *server, _, path string) *exec.Cmd {
		return command(t, "curl", "-sS", "-k", "--ssl-reqd", "-u", account+":"+password, "-T", "-", "ftp://"+s.v4+path)
	}},
	{name: "lftp", need: "lftp", command: func(t testing.TB, s *server, _, path string) *exec.Cmd {
		secure := strings.Replace(lftpOpen(s), "set ftp:ssl-allow no",
			"set ssl:verify-certificate no; set ftp:ssl-force yes; set ftp:ssl-protect-data yes", 1)
		return command(t, "lftp", "-c", secure+"put /dev/stdin -o "+path)
	}},
}

func secureScript(interpreter, script string) func(testing.TB, *server, string, string) *exec.Cmd {
	send := scriptUpload(interpreter, script)
	return func(t testing.TB, s *server, kind, path string) *exec.Cmd {
		cmd := send(t, s, kind, path)
		cmd.Env = append(cmd.Env, "FTP_TLS=1")
		return cmd
	}
}

// sending is a client in the middle of an upload that has no end.
type sending struct {
	t     testing.TB
	s     *server
	path  string // of its target, which held "old" before
	cmd   *exec.Cmd
	out   *logBuffer    // what it says
	fed   chan struct{} // closed when it takes nothing more
	ended chan struct{}

	lingers bool // it does not end at once: lftp tries again after half a minute
}

// send starts an upload that has no end onto a file that holds "old", in a directory of its own. The client speaks to
// the address; its upload is waited for until so many bytes of it are on disk.
func (s *server) send(t testing.TB, u uploader, address, kind string, arrived int64) *sending {
	t.Helper()
	if u.need != "" {
		need(t, u.need)
	}
	c := s.launch(t, u, address, kind)
	await(t, "bytes arrive", func() bool {
		if c.hasEnded() {
			t.Fatalf("%s ended: %v\n%s\n%s", u.name, c.cmd.ProcessState, c.out, s.log)
		}
		return c.arrived() > arrived
	})
	return c
}

// launch is send without the waiting.
func (s *server) launch(t testing.TB, u uploader, address, kind string) *sending {
	t.Helper()
	dir, err := os.MkdirTemp(s.root, "cell-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &sending{t: t, s: s, path: "/" + filepath.Base(dir) + "/target", out: newLogBuffer(), fed: make(chan struct{}), ended: make(chan struct{})}
	s.write(c.path, "old")
	there := &server{v4: address}
	c.cmd = u.command(t, there, kind, c.path)
	c.cmd.Env = append(c.cmd.Env, "FTP_PASSIVE=1") // for Net::FTP, which would take its word from the machine's libnet.cfg
	c.lingers = u.name == "lftp"
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.out
	to, err := c.cmd.StdinPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go feed(to, c.fed)
	go func() {
		defer close(c.ended)
		_ = c.cmd.Wait()
	}()
	t.Cleanup(c.kill)
	return c
}

// feed writes lines until nobody takes them: half a megabyte at once, the rest as slowly as from a far country.
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

// kill ends the client with SIGKILL, if it still runs, and waits.
func (c *sending) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
	<-c.fed
}

func (c *sending) signal(signal syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(signal); err != nil {
		c.t.Error(err)
	}
}

func (c *sending) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// temporaries are what is on disk of the upload.
func (c *sending) temporaries() []string {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(c.s.path(c.path)), ".ftplockd-*"))
	if err != nil {
		c.t.Error(err)
	}
	return found
}

// arrived is how much of the upload is on disk.
func (c *sending) arrived() int64 {
	for _, file := range c.temporaries() {
		if info, err := os.Stat(file); err == nil {
			return info.Size()
		}
	}
	return -1
}

// untouched checks that the old file is there as it was, and nothing else.
func (c *sending) untouched() {
	c.t.Helper()
	await(c.t, "the temporary goes", func() bool { return len(c.temporaries()) == 0 })
	if got := c.s.read(c.path); got != "old" {
		c.t.Errorf("published %d bytes", len(got))
	}
	if entries, err := os.ReadDir(filepath.Dir(c.s.path(c.path))); err != nil || len(entries) != 1 {
		c.t.Errorf("left over: %v, %v", entries, err)
	}
}

// discarded checks that it is untouched, and returns what the log says of the upload: how many bytes came, and why it
// was discarded.
func (c *sending) discarded(why string) (received int64) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the client said:\n%s", c.out)
		}
	}()
	c.s.log.await(c.t, `msg="upload discarded" path=`+c.path+" bytes=", 1)
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

// complains checks that the client ends by itself and lets its user know that the upload failed: by its exit status, or
// by the reply, which is all that tnftp shows.
func (c *sending) complains() {
	c.t.Helper()
	if c.lingers {
		c.kill() // it has not taken its upload for done, unless it had ended before
	}
	select {
	case <-c.ended:
	case <-time.After(patience):
		c.t.Errorf("the client does not end\n%s", c.out)
		return
	}
	out := c.out.String()
	if c.cmd.ProcessState.Success() && !refusal.MatchString(out) && !strings.Contains(out, "421 Service not available") {
		c.t.Errorf("the client takes its upload for done:\n%s", out)
	}
	if strings.Contains(out, c.s.root) || strings.Contains(out, c.s.state) {
		c.t.Errorf("told where files lie:\n%s", out)
	}
}
