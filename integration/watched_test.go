package integration

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// get asks the page's address for something, and returns the status and the body.
func (s *server) get(path string) (status int, body string) {
	s.t.Helper()
	client := http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	answer, err := client.Get(s.page + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestHooksRunAndFollowAReload(t *testing.T) {
	t.Parallel()
	posted := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		posted <- r.Header.Get("Content-Type") + " " + string(text)
	}))
	defer receiver.Close()
	s := startServer(t, defaults)
	told := filepath.Join(t.TempDir(), "told")
	c := s.session(account)
	c.Want(257, "MKD /locks/before")
	s.configure(fmt.Sprintf("[[hook]]\non = ['acquire', 'break']\nmatch = '/locks/a*'\nrun = ['/bin/sh', '-c', 'cat >>%s; test -z \"$FTPLOCKD_PASSWORD\"']\n[[hook]]\non = ['publish', 'release']\nurl = '%s/told'\n%s", told, receiver.URL, defaults))
	s.signal(syscall.SIGHUP)
	s.log.Await(t, "msg=reloaded", 1)
	tokenOfA := harness.Token(c.Want(257, "MKD /locks/a\x8e"))
	c.Want(257, "MKD /locks/b")
	c.stores("/f", "12345")
	s.session("boss").Breaks("/locks/a\x8e")
	c.Want(250, "RMD /locks/b")

	var lines []string
	harness.Await(t, "the program is told twice", func() bool {
		text, _ := os.ReadFile(told) // perhaps not there yet
		lines = strings.SplitAfter(string(text), "\n")
		return len(lines) == 3
	})
	var first, second map[string]any
	for i, into := range []*map[string]any{&first, &second} {
		if err := json.Unmarshal([]byte(lines[i]), into); err != nil {
			t.Fatalf("%v: %s", err, lines[i])
		}
	}
	if first["event"] != "acquire" || first["lock_encoded"] != "/locks/a%8E" || first["token"] != float64(tokenOfA) || first["holder"] != account+"@127.0.0.1" || second["event"] != "break" {
		t.Errorf("the program was told %s", lines)
	}
	for _, want := range []string{`"event":"publish"`, `"event":"release"`} { // one after the other
		if got := <-posted; !strings.HasPrefix(got, "application/json ") || !strings.Contains(got, want) {
			t.Errorf("posted %s, want %s", got, want)
		}
	}
	s.configure("[[hook]]\non = ['acquire']\nrun = ['/none']\n" + defaults)
	s.errorsExpected = true
	s.signal(syscall.SIGHUP)
	s.log.Await(t, "reload refused, nothing has changed", 1)
	if log := s.log.String(); !strings.Contains(log, "hook[1].run") || strings.Contains(log, "hook failed") {
		t.Errorf("the log says\n%s", log)
	}
}

func TestXferlogAndALogInJSON(t *testing.T) {
	t.Parallel()
	s := newServer(t, "")
	xferlog := filepath.Join(t.TempDir(), "xferlog")
	s.configure(defaults)
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.config, fmt.Appendf(nil, "xferlog = %q\n%s", xferlog, text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.flags = []string{"--log-format", "json", "--log-level", "debug"}
	s.start()
	c := s.session(account)
	c.Want(257, "MKD /locks/caf\x8e")
	c.Want(200, "TYPE I")
	c.stores("/a b", "12345")
	if _, err := c.Retrieve("RETR /a b"); err != nil {
		t.Fatal(err)
	}
	c.Want(221, "QUIT")
	s.stop()
	lines, err := os.ReadFile(xferlog)
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} \d+ 127\.0\.0\.1 5 /a_b b _ i r phoneacc ftp 0 \* c\n` +
		`\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} \d+ 127\.0\.0\.1 5 /a_b b _ o r phoneacc ftp 0 \* c\n$`)
	if !want.Match(lines) {
		t.Errorf("xferlog:\n%s", lines)
	}
	seen := make(map[string]map[string]any)
	for line := range strings.Lines(s.log.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("%v: %s", err, line)
			continue
		}
		seen[fmt.Sprint(entry["msg"], entry["line"])] = entry
	}
	if e := seen["lock acquired<nil>"]; e["lock"] != `/locks/caf\x8e` || e["session"] == nil || e["token"] != 1.0 || e["holder"] != account+"@127.0.0.1" || e["level"] != "INFO" {
		t.Errorf("%v", e)
	}
	for _, want := range []string{"logged in<nil>", "upload published<nil>", "commandPASS ****", "commandRETR /a b", "stopping<nil>"} {
		if seen[want] == nil {
			t.Errorf("no line %q", want)
		}
	}
	if strings.Contains(s.log.String(), password) {
		t.Error("the password is in the log")
	}
}

// banner starts a server that is told nothing of its addresses, and returns what it shows and its lines for curl. It is stopped at the end of the test.
func banner(t *testing.T, cmd *exec.Cmd, log *harness.LogBuffer) (text string, curls []string) {
	t.Helper()
	out := harness.NewLogBuffer()
	cmd.Stdout, cmd.Stderr = out, log
	p := started(t, cmd)
	out.Await(t, "'RMD ", 1)
	t.Cleanup(func() {
		p.signal(t, syscall.SIGTERM)
		if status := p.exit(t); status != 0 {
			t.Errorf("exit status %d\n%s", status, log)
		}
	})
	for _, m := range regexp.MustCompile(`(?m)^  (curl .*)$`).FindAllStringSubmatch(out.String(), -1) {
		curls = append(curls, m[1])
	}
	return out.String(), curls
}

func TestTheFirstStartShowsNoPasswordAndItsLinesWork(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	for _, given := range []string{"", "hush hush"} {
		dir := t.TempDir()
		state, log := filepath.Join(dir, "state"), harness.NewLogBuffer()
		cmd := command(t, binary, "--listen", "127.0.0.1:0", "--root", filepath.Join(dir, "files"), "--state", state)
		if given != "" {
			cmd.Env = append(cmd.Env, "FTPLOCKD_PASSWORD="+given)
			if taken, err := net.Listen("tcp", "127.0.0.1:2180"); err == nil { // else somebody else has it
				defer taken.Close()
			}
		}
		text, curls := banner(t, cmd, log)
		kept, _ := os.ReadFile(filepath.Join(state, "password")) // not there if one was given
		secret := strings.TrimSpace(string(kept))
		if given != "" {
			secret = given
		}
		if secret == "" || strings.Contains(text, secret) || strings.Contains(log.String(), secret) {
			t.Errorf("password %q in\n%s", secret, text)
		}
		if given == "" && !strings.Contains(text, "password in "+filepath.Join(state, "password")) {
			t.Errorf("the file of the password is not named:\n%s", text)
		}
		// The port of the page is the same for all: another server of this machine may have it.
		page := strings.Contains(text, "its page is at http://127.0.0.1:2180/\n")
		if warned := strings.Contains(log.String(), "there is no page: its address is in use"); page == warned || page && given != "" {
			t.Errorf("a page: %v; a warning that there is none: %v", page, warned)
		}
		var said []string
		for _, line := range curls {
			shell := command(t, "sh", "-c", line)
			if given != "" {
				shell.Env = append(shell.Env, "FTPLOCKD_PASSWORD="+given)
			}
			said = append(said, finish(t, shell).out)
		}
		if len(said) != 3 || !strings.Contains(said[0], "< 257 \"/locks/demo\" locked, token 1, ") || !strings.Contains(said[1], "< 550 /locks/demo: held by ") || !strings.Contains(said[2], "< 250 /locks/demo") {
			t.Errorf("the lines of\n%s\nsay %q", text, said)
		}
	}
}

// The page has an address that can be typed. curl is told of TLS, and does not ask for a password.
func TestTheFirstLinesAreRightWhereTLSIsRequired(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	tables := strings.Replace(tlsTables(t, t.TempDir()), "optional", "required", 1)
	s := newServer(t, tables+"[http]\nlisten = \":0\"\n"+defaults)
	text, curls := banner(t, command(t, binary, "--config", s.config), s.log)
	page := regexp.MustCompile(`its page is at (https://127\.0\.0\.1:\d+/)\n`).FindStringSubmatch(text)
	if page == nil {
		t.Fatal(text)
	}
	if r := run(t, "curl", "-sSk", page[1]+"healthz"); r.out != "ok\n" {
		t.Errorf("%s is no page: %s", page[1], r.out)
	}
	for i, line := range curls {
		r := run(t, "sh", "-c", strings.Replace(line, "-u "+account+":PASSWORD ", "-u "+account+":"+password+" ", 1))
		if want := []string{"< 257", "< 550", "< 250"}[i]; !strings.Contains(r.out, want) {
			t.Errorf("%s says %q", line, r.out)
		}
	}
}

func TestASecondStartWritesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	s.session(account).Want(257, "MKD /locks/a")
	list := func() (all []string) {
		err := filepath.WalkDir(filepath.Dir(s.root), func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			switch name := filepath.Base(path); {
			case name == "spare": // the first server prepares space in its journal
				return err
			case name == "journal", strings.HasSuffix(name, ".jsonl"):
				all = append(all, path)
				return err
			}
			all = append(all, fmt.Sprint(path, " ", info.Mode(), " ", info.Size(), " ", info.ModTime()))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := list()
	dir := filepath.Dir(s.root)
	r := run(t, binary, "--listen", "127.0.0.1:0", "--root", filepath.Join(dir, "another"), "--state", s.state)
	if last := strings.TrimSpace(r.out[strings.LastIndex(strings.TrimSpace(r.out), "\n")+1:]); r.status != 1 || !strings.HasPrefix(last, "ftplockd: "+s.state+": another ftplockd (pid ") {
		t.Errorf("status %d: %s", r.status, r.out)
	}
	if after := list(); !slices.Equal(before, after) {
		t.Errorf("there was\n%s\nand there is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// Who logged in to the page as an administrator is none any more when a reload has taken that away.
func TestPageSessionEndsWithTheRightsOfItsAccount(t *testing.T) {
	t.Parallel()
	for why, change := range map[string]func(accounts string) string{
		"removed": func(accounts string) string { return accounts[:strings.LastIndex(accounts, "[[account]]")] },
		"demoted": func(accounts string) string { return strings.Replace(accounts, "admin = true", "admin = false", 1) },
		"password": func(accounts string) string {
			return strings.Replace(accounts, "name = \"boss\"\npassword = \"$2a$", "name = \"boss\"\npassword = \"$2b$", 1)
		},
	} {
		t.Run(why, func(t *testing.T) {
			s := startServer(t, withPage)
			token := harness.Token(s.session(account).Want(257, "MKD /locks/a"))
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			client := http.Client{Timeout: patience, Jar: jar}
			defer client.CloseIdleConnections()
			show := func(answer *http.Response, err error) string {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				text, err := io.ReadAll(answer.Body)
				if err != nil {
					t.Fatal(err)
				}
				return string(text)
			}
			asks := fmt.Sprintf("%sbreak?token=%d", s.page, token)
			show(client.PostForm(s.page+"login", url.Values{"user": {"boss"}, "password": {password}}))
			if text := show(client.Get(asks)); !strings.Contains(text, "Break this lock?") {
				t.Fatalf("before: %s", text)
			}
			before, err := os.ReadFile(s.config)
			if err != nil {
				t.Fatal(err)
			}
			after := change(string(before))
			if after == string(before) {
				t.Fatal("the configuration has not changed")
			}
			writeFile(t, s.config, []byte(after))
			s.mustReload()
			if text := show(client.Get(asks)); !strings.Contains(text, "<h2>Log in</h2>") {
				t.Errorf("after: %s", text)
			}
		})
	}
}

func TestPageOutsideLoopbackNeedsTLSAndALogin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, "[http]\nlisten = \"0.0.0.0:0\"\n"+tlsTables(t, dir)+defaults)
	if !strings.HasPrefix(s.page, "https://127.0.0.1:") {
		t.Fatalf("the page is at %q", s.page)
	}
	pair, err := os.ReadFile(filepath.Join(dir, "cert.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pair)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	client := http.Client{Timeout: patience, Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, c := range []struct {
		path, host, user, guess string
		status                  int
	}{
		{path: "", status: 303}, {path: "stream", status: 303}, {path: "break?token=1", status: 303},
		{path: "metrics", status: 401}, {path: "metrics", user: "boss", guess: "guess", status: 401}, {path: "metrics", user: "boss", guess: password, status: 200},
		{path: "healthz", status: 200}, {path: "readyz", status: 200}, {path: "login", status: 200},
		{path: "login", host: "localhost", status: 200}, {path: "login", host: "evil.example.com", status: 421},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.page+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		if c.user != "" {
			r.SetBasicAuth(c.user, c.guess)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != c.status {
			t.Errorf("%+v: %s", c, answer.Status)
		}
	}
}
