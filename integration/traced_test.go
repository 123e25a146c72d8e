package integration

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// ftpserverlib executes the commands: that is checked with a server that is built with a copy of the library which tells
// on standard error what it executes and what it replies.

// traces are what is put into the copy: behind a line that must be in the file once, a text. A line is one write, or a line of
// the log comes into it (the builtin println writes each of its arguments by itself).
var traces = []struct{ behind, text string }{
	{"package ftpserver\n", "import trace \"os\"\n"},
	{"func (c *clientHandler) executeCommandFn(cmdDesc *CommandDescription, command, param string) {\n",
		"\ttrace.Stderr.WriteString(\"library executes \" + command + \"\\n\")\n"},
	{"func (c *clientHandler) writeLine(line string) {\n",
		"\ttrace.Stderr.WriteString(\"library replies \" + line + \"\\n\")\n"},
}

// tracedBinary is that server, built when the first test wants it.
var tracedBinary = sync.OnceValues(func() (string, error) {
	const library = "github.com/fclairamb/ftpserverlib"
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", library).Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	dir := filepath.Join(filepath.Dir(binary), "traced")
	copied := filepath.Join(dir, "ftpserverlib")
	if err := os.CopyFS(copied, os.DirFS(strings.TrimSpace(string(out)))); err != nil {
		return "", err
	}
	file := filepath.Join(copied, "client_handler.go")
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := string(source)
	for _, t := range traces {
		if strings.Count(text, t.behind) != 1 {
			return "", fmt.Errorf("%s has not one %q", file, t.behind)
		}
		text = strings.Replace(text, t.behind, t.behind+t.text, 1)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		return "", err
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			return "", err
		}
		if name == "go.mod" {
			content = fmt.Appendf(content, "\nreplace %s => %s\n", library, copied)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	program := filepath.Join(dir, "ftplockd")
	return program, build(program, "-modfile="+filepath.Join(dir, "go.mod"))
})

// traced is a session with a server that tells what its library does.
type traced struct {
	*session
	server *server
	marks  *session // another one, whose NOOP comes into the log behind all that was before
}

// newTraced logs in, over TLS, which all commands work under.
func newTraced(t *testing.T) *traced {
	t.Helper()
	program, err := tracedBinary()
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, defaults+tlsTables(t, t.TempDir()))
	s.program = program
	s.start()
	c := s.stranger()
	all := &traced{session: c, server: s, marks: s.session("other")}
	all.executed(0, func() {}) // what was before is in the log
	return all
}

// executed runs something and returns which commands the library executed meanwhile, and which codes it replied with. So many of them are NOOP.
func (c *traced) executed(noops int, run func()) (commands, codes []string) {
	c.T.Helper()
	before := len(c.server.log.String())
	run()
	c.marks.Want(200, "NOOP")
	harness.Await(c.T, "the mark is in the log", func() bool {
		commands, codes = nil, nil
		left := noops
		for line := range strings.Lines(c.server.log.String()[before:]) {
			line = strings.TrimSpace(line)
			if command, ok := strings.CutPrefix(line, "library executes "); ok {
				if command == "NOOP" {
					left--
				}
				commands = append(commands, command)
			}
			if reply, ok := strings.CutPrefix(line, "library replies "); ok && len(reply) > 3 && reply[3] == ' ' && reply[0] > '1' {
				if left < 0 { // to the mark
					commands = commands[:len(commands)-1]
					return true
				}
				codes = append(codes, reply[:3])
			}
		}
		return false
	})
	return commands, codes
}

// reaches checks that the library executes that command, and nothing else, and gives it its final reply.
func (c *traced) reaches(want, line string, run func()) {
	c.T.Helper()
	noops := 0
	if want == "NOOP" {
		noops = 1
	}
	commands, codes := c.executed(noops, run)
	if len(commands) != 1 || commands[0] != want {
		c.T.Errorf("%s: the library executes %q, want %s", line, commands, want)
	}
	if len(codes) != 1 {
		c.T.Errorf("%s: the library gives the final replies %q, want one", line, codes)
	}
}

func (c *traced) simple(want string, code int, line string) {
	c.T.Helper()
	c.reaches(want, line, func() { c.T.Helper(); c.session.Want(code, line) })
}

// transfer runs a command with a data connection that was prepared.
func (c *traced) transfer(want, line string, dial func() net.Conn, send string) {
	c.T.Helper()
	c.reaches(want, line, func() {
		c.T.Helper()
		c.says(line)
		data := tls.Client(dial(), &tls.Config{InsecureSkipVerify: true})
		c.WantReply(150)
		if _, err := io.WriteString(data, send); err != nil {
			c.T.Fatal(err)
		}
		if send != "" {
			_ = data.Close()
		} else if _, err := io.Copy(io.Discard, data); err != nil {
			c.T.Fatal(err)
		}
		_ = data.Close()
		c.WantReply(226)
	})
}

func dialPort(t *testing.T, port int) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

var portNumber = regexp.MustCompile(`\|\|\|(\d+)\||(\d+),(\d+)\)`)

func TestTheLibraryExecutesTheCommands(t *testing.T) {
	t.Parallel()
	c := newTraced(t)
	c.Want(234, "AUTH TLS")
	c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
	c.R.Reset(c.Conn)

	c.Want(200, "PBSZ 0")
	c.simple("PROT", 200, "prot p")
	c.simple("USER", 331, "USER "+account)
	c.simple("PASS", 530, "PASS wrong")
	c.simple("USER", 331, "USER "+account)
	c.simple("PASS", 230, "PASS "+password)

	// passive opens a port with a command and returns how to connect to it.
	passive := func(verb string, code int) func() net.Conn {
		var port int
		c.reaches(verb, verb, func() {
			m := portNumber.FindStringSubmatch(c.Want(code, verb).Text)
			if m[1] != "" {
				fmt.Sscan(m[1], &port)
				return
			}
			var high, low int
			fmt.Sscan(m[2], &high)
			fmt.Sscan(m[3], &low)
			port = high<<8 | low
		})
		return func() net.Conn { return dialPort(t, port) }
	}
	// active listens, says so, and returns how to get the server's connection.
	active := func(verb string, line func(port int) string) func() net.Conn {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		text := line(l.Addr().(*net.TCPAddr).Port)
		c.reaches(verb, text, func() { c.Want(200, text) })
		return func() net.Conn {
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
	}
	port := func(p int) string { return fmt.Sprintf("PORT 127,0,0,1,%d,%d", p>>8, p&255) }
	eprt := func(p int) string { return fmt.Sprintf("EPRT |1|127.0.0.1|%d|", p) }

	c.transfer("STOR", "STOR a.txt", passive("PASV", 227), "some text\r\n")
	c.transfer("APPE", "APPE a.txt", passive("EPSV", 229), "more\r\n")
	c.transfer("STOR", "STOU", active("PORT", port), "unique\r\n")
	c.transfer("RETR", "RETR a.txt", active("EPRT", eprt), "")
	for _, listing := range []string{"LIST -la", "NLST *.txt", "MLSD"} {
		c.transfer("RETR", listing, passive("EPSV", 229), "")
	}
	for _, s := range []struct {
		want string
		code int
		line string
	}{
		{"MKD", 257, "MKD /locks/a"}, {"MKD", 550, "MKD /locks/a"}, {"RMD", 250, "RMD /locks/a"},
		{"XMKD", 257, "XMKD /locks/a"}, {"XRMD", 250, "XRMD /locks/a"}, {"MKD", 257, "MKD dir"},
		{"CWD", 250, "CWD dir"}, {"XCWD", 250, "XCWD /dir"}, {"PWD", 257, "PWD"}, {"XPWD", 257, "XPWD"},
		{"CDUP", 250, "CDUP"}, {"CDUP", 250, "XCUP"}, {"RMD", 250, "RMD dir"},
		{"TYPE", 200, "TYPE I"}, {"MODE", 200, "MODE s"}, {"ALLO", 200, "ALLO 5 R 3"}, {"REST", 350, "REST 0"},
		{"SIZE", 213, "SIZE a.txt"}, {"MDTM", 213, "MDTM a.txt"}, {"MFMT", 213, "MFMT 20200102030405 a.txt"},
		{"MFMT", 213, "MDTM 20200102030405 a.txt"}, {"MLST", 250, "MLST a.txt"}, {"STAT", 213, "STAT a.txt"},
		{"STAT", 213, "STAT /"}, {"AVBL", 213, "AVBL"}, {"HASH", 213, "HASH a.txt"}, {"XSHA256", 250, "XSHA256 a.txt"},
		{"XCRC", 250, "XCRC a.txt"}, {"OPTS", 200, "OPTS HASH sha-1"}, {"OPTS", 200, "OPTS UTF8 ON"},
		{"RNFR", 350, "RNFR a.txt"}, {"RNTO", 250, "RNTO b.txt"}, {"SITE", 214, "SITE HELP"}, {"SITE", 200, "SITE WAIT 0"},
		{"SITE", 200, "SITE CHMOD 600 b.txt"}, {"DELE", 250, "DELE b.txt"}, {"NOOP", 200, "NOOP"}, {"SYST", 215, "SYST"},
		{"CLNT", 200, "CLNT test"}, {"QUIT", 221, "QUIT"},
	} {
		c.simple(s.want, s.code, s.line)
	}
}

// The library cannot know the answers to these, so control gives them; each has its reply, and the library is not asked.
func TestCommandsThatTheLibraryDoesNotExecute(t *testing.T) {
	t.Parallel()
	c := newTraced(t)
	c.executed(0, func() {
		c.Want(331, "USER "+account)
		c.Want(230, "PASS "+password)
	})
	commands, _ := c.executed(0, func() {
		for line, code := range map[string]int{
			"FEAT": 211, "HELP": 214, "STRU F": 200, "STAT": 211, "EPSV ALL": 200, "OPTS MLST type;": 200, "ACCT x": 202, "SMNT x": 502,
			"LANG": 502, "UNKNOWN": 500, "ABOR": 226,
		} {
			c.Want(code, line)
		}
	})
	if len(commands) > 0 {
		t.Errorf("the library executes %q", commands)
	}
}
