package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// cronJob has a recipe of examples/cron and a server for it.
type cronJob struct {
	*server
	recipe string
	script string // the path of the recipe
	dir    string
	mail   bytes.Buffer // of the last run
}

// command prepares a run in a process group of its own.
func (c *cronJob) command(env ...string) *exec.Cmd {
	c.mail.Reset()
	cmd := c.exampleCommand(c.t, exampleFile(c.t, "cron/cron-job"), "phone.log", c.script)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, &c.mail, &c.mail
	cmd.Env = append(cmd.Env, "TMPDIR="+filepath.Join(c.dir, "tmp"), "PATH="+c.dir+":"+filepath.Dir(netlock)+":"+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// cronKill says which process of a recipe gets a signal.
type cronKill int

const (
	termJob    cronKill = iota // SIGTERM to cron-job
	termClient                 // SIGTERM to the client program, such as curl
	killGroup                  // SIGKILL to all processes
)

// killed begins an upload, stops the server in the middle of it, sends the signal, and continues the server.
func (c *cronJob) killed(how cronKill) {
	c.t.Helper()
	if err := os.Truncate(filepath.Join(c.dir, "phone.tsv"), 512<<20); err != nil {
		c.t.Fatal(err)
	}
	harness.Await(c.t, "earlier uploads end", func() bool { return len(c.unfinished()) == 0 })
	p := started(c.t, c.command())
	harness.Await(c.t, "the upload has begun", func() bool { return len(c.unfinished()) > 0 })
	c.freeze()
	status := 143
	switch how {
	case killGroup:
		p.kill()
		c.server.signal(syscall.SIGCONT)
		return
	case termJob:
		p.signal(c.t, syscall.SIGTERM)
	case termClient:
		client := childOf(c.t, p.cmd.Process.Pid, "phone") // lftp and netlock take the place of the script
		switch c.recipe {
		case "phone-curl":
			client = childOf(c.t, client, "curl")
		case "phone-ftp":
			client, status = childOf(c.t, client, "ftp"), 1
		}
		if err := syscall.Kill(client, syscall.SIGTERM); err != nil {
			c.t.Fatal(err)
		}
	}
	c.server.signal(syscall.SIGCONT)
	p.ended(c.t, status)
	want := fmt.Sprintf("status %d: ", status)
	if log := readSoon(c.t, filepath.Join(c.dir, "phone.log")); !strings.Contains(log, want) || !strings.Contains(c.mail.String(), want) {
		c.t.Errorf("the log is %q, the mail is %q", log, &c.mail)
	}
	if left, _ := filepath.Glob(filepath.Join(c.dir, "tmp", "*")); len(left) > 0 {
		c.t.Errorf("left over: %q", left)
	}
}

// refused runs the recipe with a short wait while another job holds the lock. The mail names the holder, and the lock
// and the file stay.
func (c *cronJob) refused() {
	c.t.Helper()
	defer func(script string) { c.script = script }(c.script)
	text := regexp.MustCompile(`(WAIT|-w) \d+`).ReplaceAllString(document(c.t, "examples/cron/"+c.recipe), "$1 1")
	c.script = filepath.Join(c.dir, "refused")
	if err := os.WriteFile(c.script, []byte(text), 0o700); err != nil {
		c.t.Fatal(err)
	}
	c.whileAnotherHolds("/phone_lock", func() {
		status := started(c.t, c.command()).exit(c.t)
		if status == 0 || !strings.Contains(c.mail.String(), "held by "+account+"@") || c.read("phone.tsv") != "old" {
			c.t.Errorf("refused: status %d, mail %q, file %q", status, &c.mail, c.read("phone.tsv"))
		}
	})
}

// line runs the line of the crontab in the environment that cron makes, and returns what cron would mail.
func (c *cronJob) line() (mail string, status int) {
	c.t.Helper()
	for _, b := range blocks(c.t, "examples/cron/README.md") {
		variables, line, found := strings.Cut(b.text, "*/10 * * * * ")
		if !found {
			continue
		}
		for _, file := range []string{"cron-job", c.recipe} {
			_ = os.Symlink(exampleFile(c.t, "cron/"+file), filepath.Join(c.dir, file))
		}
		writeFile(c.t, filepath.Join(c.dir, "password"), []byte(password+"\n"))
		cmd := c.command()
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", strings.NewReplacer("/opt/phone", c.dir, "phone-curl", c.recipe).Replace(line)}
		host, port := split(c.v4)
		variables = strings.NewReplacer("ftp.example.com", host, "PORT=21", "PORT="+port, "phoneacc", account,
			"PATH=", "PATH="+c.dir+":"+filepath.Dir(netlock)+":").Replace(variables)
		cmd.Env = append([]string{"HOME=" + c.dir, "LOGNAME=phone", "SHELL=/bin/sh"}, strings.Fields(variables)...)
		status = started(c.t, cmd).exit(c.t)
		return c.mail.String(), status
	}
	c.t.Fatal("there is no crontab")
	return "", 0
}

// childOf returns the child of a process with an argument.
func childOf(t testing.TB, parent int, argument string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		line, _ := os.ReadFile(name)
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if strings.Contains(string(line), argument) && len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("process %d has no child %s", parent, argument)
	return 0
}

// TestCronRecipes runs each recipe of examples/cron: with success, refused, with a wrong password, and killed in the
// middle of the upload.
func TestCronRecipes(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl", "lftp", "tnftp")
	for _, recipe := range []string{"phone-curl", "phone-lftp", "phone-ftp", "phone-netlock"} {
		t.Run(recipe, func(t *testing.T) {
			t.Parallel()
			c := &cronJob{server: startServer(t, exampleRules(t, "cron")), recipe: recipe, script: exampleFile(t, "cron/"+recipe), dir: t.TempDir()}
			tnftp, err := exec.LookPath("tnftp") // other programs with the name ftp differ
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(tnftp, filepath.Join(c.dir, "ftp")); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(c.dir, "tmp"), 0o700); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(c.dir, "phone.tsv"), []byte("new\n"))
			run := func(env ...string) int { return started(t, c.command(env...)).exit(t) }

			if status := run(); status != 0 || c.mail.String() != "" || c.read("phone.tsv") != "new\n" || len(c.locks()) > 0 {
				t.Fatalf("status %d, mail %q, file %q, %v", status, &c.mail, c.read("phone.tsv"), c.locks())
			}
			c.write("phone.tsv", "old")
			if out, status := c.line(); status != 0 || out != "" || c.read("phone.tsv") != "new\n" {
				t.Errorf("the crontab: status %d, mail %q, file %q", status, out, c.read("phone.tsv"))
			}
			if status := run("FTP_PASSWORD=wrong"); status == 0 || !strings.Contains(c.mail.String(), "530") && !strings.Contains(c.mail.String(), "denied") {
				t.Errorf("with a wrong password: status %d, mail %q", status, &c.mail)
			}
			c.write("phone.tsv", "old")
			c.refused()
			for _, how := range []cronKill{termJob, termClient} {
				if c.killed(how); recipe == "phone-curl" && len(c.locks()) > 0 {
					t.Errorf("the recipe leaves its lock: %v", c.locks())
				}
				for _, l := range c.locks() { // do not wait for the end of each; it may end meanwhile
					c.session("boss").wantEither(fmt.Sprintf("SITE LOCK BREAK %d %s", l.Token, l.Name))
				}
				c.awaitEnd(t, "/phone_lock")
			}
			c.killed(killGroup)
			if recipe == "phone-curl" {
				if l := c.locks(); len(l) != 1 || l[0].ExpiresIn == nil || *l[0].ExpiresIn > 600 {
					t.Errorf("locks after SIGKILL: %v", l)
				}
				c.session("boss").Breaks("/phone_lock")
			}
			c.awaitEnd(t, "/phone_lock")
			harness.Await(t, "the uploads end", func() bool { return len(c.unfinished()) == 0 })
			if recipe != "phone-ftp" && c.read("phone.tsv") != "old" { // the README says that tnftp can publish a part
				t.Error("the upload of a killed recipe was published")
			}
		})
	}
}

// TestCronRecipesAreThoseOfThePage compares the scripts of docs/clients.md with examples/cron.
func TestCronRecipesAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	files := map[string]string{"curl": "phone-curl", "lftp": "phone-lftp", "ftp -n": "phone-ftp", "A job of cron": "cron-job"}
	for _, b := range blocks(t, "docs/clients.md") {
		file := files[b.heading]
		if b.kind != "sh" || file == "" {
			continue
		}
		if text := document(t, "examples/cron/"+file); text != b.text {
			t.Errorf("docs/clients.md, %q, differs from examples/cron/%s", b.heading, file)
		}
		delete(files, b.heading)
	}
	if len(files) > 0 {
		t.Errorf("docs/clients.md lacks %v", files)
	}
}
