package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// Mistakes of those who try the examples for the first time are told in one line.
func TestExamplesExplainMistakesInOneLine(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	gone := "FTP_PORT=" + strings.TrimPrefix(unused(t), "127.0.0.1:")
	for name, c := range map[string]struct {
		line   []string
		env    string
		says   string
		status int
	}{
		"add.pl without a name":                {[]string{"perl", "perl-netlock/add.pl", "", "1"}, "", "can be empty", -1},
		"add.pl without a number":              {[]string{"perl", "perl-netlock/add.pl", "anna", ""}, "", "can be empty", -1},
		"downloader.pl where nothing can be":   {[]string{"perl", "perl-netlock/downloader.pl", "none/such"}, "", ".part: No such file", -1},
		"worker.py without arguments":          {[]string{"python3", "python-multilock/worker.py"}, "", "usage: worker.py", 1},
		"worker.py with another word":          {[]string{"python3", "python-multilock/worker.py", "cuont"}, "", "usage: worker.py", 1},
		"worker.py with a word for a number":   {[]string{"python3", "python-multilock/worker.py", "count", "x"}, "", "usage: worker.py", 1},
		"worker.py with too many":              {[]string{"python3", "python-multilock/worker.py", "once", "0", "1"}, "", "1 arguments at most", 1},
		"worker.py without a server":           {[]string{"python3", "python-multilock/worker.py", "count"}, gone, "refused", 1},
		"counter.php with a word for a number": {[]string{"php", "php-mutex/counter.php", "x"}, "", "usage: php counter.php", 64},
		"counter.php without a server":         {[]string{"php", "php-mutex/counter.php"}, gone, "counter.php: 127.0.0.1: no connection", 1},
	} {
		t.Run(name, func(t *testing.T) {
			harness.Need(t, c.line[0])
			line := append([]string{c.line[0], exampleFile(t, c.line[1])}, c.line[2:]...)
			cmd := s.exampleCommand(t, line...)
			if c.env != "" {
				cmd.Env = append(cmd.Env, c.env)
			}
			r := finish(t, cmd)
			if r.status == 0 || c.status > 0 && r.status != c.status || strings.Count(r.out, "\n") != 1 || !strings.Contains(r.out, c.says) {
				t.Errorf("%+v", r)
			}
		})
	}
	s.session("other").wantFree("/phone_lock", 0)
}

func TestShellPageRefusesWorkThatIsNotANumber(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	s := startServer(t, defaults)
	for _, work := range []string{"long", "1.2.3", "-1", ".", "1;2"} {
		cmd := s.exampleCommand(t, "sh", exampleFile(t, "shell-highlander/visitors.cgi"))
		cmd.Env = append(cmd.Env, "WORK="+work)
		if r := finish(t, cmd); r.status != 1 || !strings.Contains(r.out, "WORK must be a number of seconds, not "+work) || strings.Contains(r.out, "begin") {
			t.Errorf("%s: %+v", work, r)
		}
	}
	if _, err := os.Stat(filepath.Join(s.root, "visitors.txt")); !os.IsNotExist(err) {
		t.Errorf("somebody was counted: %v", err)
	}
}
