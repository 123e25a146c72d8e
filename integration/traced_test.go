package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// ftpserverlib executes the commands. The script library.txtar checks that with a server that is built with a copy of the library, which writes to
// standard error what it executes and what it replies.

// traces are the insertions into the copy: each text follows a line that must be in the file once. A line is one write, so that no line of the log
// gets into it.
var traces = []struct{ behind, text string }{
	{"package ftpserver\n", "import trace \"os\"\n"},
	{"func (c *clientHandler) executeCommandFn(cmdDesc *CommandDescription, command, param string) {\n",
		"\ttrace.Stderr.WriteString(\"library executes \" + command + \"\\n\")\n"},
	{"func (c *clientHandler) writeLine(line string) {\n",
		"\ttrace.Stderr.WriteString(\"library replies \" + line + \"\\n\")\n"},
}

// tracedBinary builds that server.
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

// executed checks which commands the library has executed since the last call, and that it gave each one final reply, beside greetings. The NOOP of another client,
// which comes behind them in the log, marks their end.
func (p *scene) executed(want []string) {
	p.t.Helper()
	p.as("b").Want(200, "NOOP")
	want = append(slices.Clone(want), "NOOP")
	var commands []string
	harness.Await(p.t, fmt.Sprintf("the library executes %q", want), func() bool {
		text, replies := p.log.String(), 0
		commands = nil
		for line := range strings.Lines(text[p.traced:]) {
			if command, ok := strings.CutPrefix(strings.TrimSpace(line), "library executes "); ok {
				commands = append(commands, command)
			} else if reply, ok := strings.CutPrefix(line, "library replies "); ok && len(reply) > 3 && reply[3] == ' ' && reply[0] > '1' && !strings.HasPrefix(reply, "220 ") {
				replies++
			}
		}
		if !slices.Equal(commands, want) || replies != len(want) {
			return false
		}
		p.traced = len(text)
		return true
	})
}
