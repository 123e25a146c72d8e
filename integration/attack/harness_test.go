// Package attack tries, through the built server, what SECURITY.md says does not work. Each test is an attack: it fails if the
// attack succeeds. A short run takes some seconds; -long tries more.
package attack

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

var long = flag.Bool("long", false, "try more")

// binary is the ftplockd that is attacked.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ftplockd-attack-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "ftplockd")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/ftplockd/ftplockd/cmd/ftplockd").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// times is how often something is tried.
func times(few, often int) int {
	if *long {
		return often
	}
	return few
}

// patience is how long a reply may take.
const patience = 20 * time.Second

// target is a server that is attacked.
type target struct {
	t       *testing.T
	dir     string // files is the served tree; what else is in it clients must not reach
	address string
	process *os.Process
}

// start runs a server with that configuration, and the accounts owner, mallory and boss (an administrator), whose password is "secret".
func start(t *testing.T, text string) *target {
	t.Helper()
	s := &target{t: t, dir: t.TempDir()}
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf("listen = ['127.0.0.1:0']\nroot = '%s'\nstate = '%s'\n%s\n", s.path("files"), s.path("state"), text)
	for _, name := range []string{"owner", "mallory"} {
		config += fmt.Sprintf("[[account]]\nname = '%s'\npassword = '%s'\n", name, hash)
	}
	config += fmt.Sprintf("[[account]]\nname = 'boss'\npassword = '%s'\nadmin = true\n", hash)
	s.write("ftplockd.toml", config)
	cmd := exec.Command(binary, "--config", s.path("ftplockd.toml"), "--log-level", "error")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.process = cmd.Process
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	s.address = strings.TrimSpace(strings.TrimPrefix(line, "ftplockd listens on "))
	go io.Copy(io.Discard, out)
	return s
}

func (s *target) path(name string) string { return filepath.Join(s.dir, name) }

// write puts a file beside or into the served tree.
func (s *target) write(name, content string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.path(name)), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.path(name), []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// snapshot is all names, modes and contents below a directory, on a line each.
func (s *target) snapshot(dir string) string {
	s.t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(s.path(dir), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
		}
		fmt.Fprintf(&all, "%s %v %q\n", path, info.Mode(), content)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all.String()
}

// client is a control connection.
type client struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

// connect opens a control connection and reads the greeting.
func (s *target) connect() *client {
	s.t.Helper()
	conn, err := net.DialTimeout("tcp", s.address, patience)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	c := &client{t: s.t, conn: conn, r: bufio.NewReader(conn)}
	c.reply()
	return c
}

func (s *target) login(account string) *client {
	s.t.Helper()
	c := s.connect()
	c.say("USER " + account)
	if got := c.say("PASS secret"); !strings.HasPrefix(got, "230") {
		s.t.Fatalf("login of %s: %s", account, got)
	}
	return c
}

// say sends a line and returns the whole reply; "" if the connection ended.
func (c *client) say(line string) string {
	c.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c.conn, line+"\r\n"); err != nil {
		return ""
	}
	return c.reply()
}

// reply reads a reply (RFC 959 section 4.2).
func (c *client) reply() string {
	c.conn.SetReadDeadline(time.Now().Add(patience))
	var all strings.Builder
	for first := ""; ; {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return ""
		}
		all.WriteString(line)
		if first == "" {
			first = line
		}
		if len(line) > 3 && line[3] == ' ' && strings.HasPrefix(line, first[:3]) {
			return all.String()
		}
	}
}

// must is say of a line that a harmless client says, too.
func (c *client) must(code, line string) string {
	c.t.Helper()
	got := c.say(line)
	if !strings.HasPrefix(got, code) {
		c.t.Fatalf("%s: %q, want %s", line, got, code)
	}
	return got
}

var extended = regexp.MustCompile(`\(\|\|\|(\d+)\|\)`)

// data opens a passive data connection for a command. It returns nil and the reply if that is refused.
func (c *client) data(line string) (net.Conn, string) {
	m := extended.FindStringSubmatch(c.say("EPSV"))
	if m == nil {
		return nil, "no port"
	}
	host, _, _ := net.SplitHostPort(c.conn.RemoteAddr().String())
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, m[1]), patience)
	if err != nil {
		return nil, err.Error()
	}
	conn.SetDeadline(time.Now().Add(patience))
	if got := c.say(line); !strings.HasPrefix(got, "1") {
		conn.Close()
		return nil, got
	}
	return conn, ""
}

// fetch downloads a file or a listing; what it returns is content or a refusal.
func (c *client) fetch(line string) string {
	data, refused := c.data(line)
	if data == nil {
		return refused
	}
	content, _ := io.ReadAll(data)
	data.Close()
	return string(content) + c.reply()
}

// store uploads and returns the last reply.
func (c *client) store(line, content string) string {
	data, refused := c.data(line)
	if data == nil {
		return refused
	}
	io.WriteString(data, content)
	data.Close()
	return c.reply()
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}
