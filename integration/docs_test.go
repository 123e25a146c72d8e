package integration

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// document reads a file of the repository.
func document(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is a part of a page that is code.
type block struct{ heading, kind, text string } // of the heading above it, without "## "; "": none

// blocks are those of a page, in their order.
func blocks(t testing.TB, path string) (all []block) {
	t.Helper()
	in, heading := false, ""
	for line := range strings.Lines(document(t, path)) {
		rest, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !in:
			in = true
			all = append(all, block{heading: heading, kind: strings.TrimSpace(rest)})
		case fence:
			in = false
		case in:
			all[len(all)-1].text += line
		case strings.HasPrefix(line, "## "):
			heading = strings.TrimSpace(line[3:])
		}
	}
	return all
}

// documents are the pages of the repository, by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := make(map[string]string)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "dist"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			name := strings.TrimPrefix(path, "../")
			pages[name] = document(t, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// anchor is what a heading is linked by, as GitHub makes it.
func anchor(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(heading))
	return strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(heading, ""), " ", "-")
}

func TestDocsLinksHaveTargets(t *testing.T) {
	t.Parallel()
	pages := documents(t)
	headings := make(map[string]bool)
	for name, text := range pages {
		for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
			headings[name+"#"+anchor(m[1])] = true
		}
	}
	for name, text := range pages {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			to, part, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			path := name
			if to != "" {
				path = filepath.Join(filepath.Dir(name), to)
			}
			if _, err := os.Stat(filepath.Join("..", path)); err != nil {
				t.Errorf("%s links %s, which is not there", name, m[1])
			}
			if part != "" && !headings[path+"#"+part] {
				t.Errorf("%s links %s: there is no such heading", name, m[1])
			}
		}
	}
}

// Each module that go.mod requires directly has a reason in docs/libraries.md, and the versions that were read are those.
func TestDocsGiveAReasonForEachDependency(t *testing.T) {
	t.Parallel()
	page := document(t, "docs/libraries.md")
	table, _, _ := strings.Cut(page, "## What they do")
	required := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)$`).FindAllStringSubmatch(document(t, "go.mod"), -1)
	if len(required) < 10 {
		t.Fatalf("go.mod requires %q", required)
	}
	for _, m := range required {
		module := strings.TrimPrefix(m[1], "github.com/")
		if !strings.Contains(table, "`"+module+"`") {
			t.Errorf("docs/libraries.md does not say why %s is there", module)
		}
		for _, read := range []string{"ftpserverlib", "afero", "jlaffaye/ftp"} {
			if name := read + " " + m[2]; strings.HasSuffix(module, read) && !strings.Contains(page, name) {
				t.Errorf("docs/libraries.md is not about %s", name)
			}
		}
	}
}

// TestTroubleshootingHasEveryRefusal looks up the texts of refusals in docs/troubleshooting.md, except those of 500 to 504, which are about
// the form and order of commands.
func TestTroubleshootingHasEveryRefusal(t *testing.T) {
	t.Parallel()
	page := strings.ReplaceAll(document(t, "docs/troubleshooting.md"), `\|`, "|")
	refused := regexp.MustCompile(`Code: (?:4|5[1-9])\d+, Text: (?:fmt\.Sprintf\()?"([^"]+)"|&refusal\{(?:code: \d+, )?(?:cause: "[a-z-]+", )?text: (?:fmt\.Sprintf\()?"([^"]+)"|answer\{(?:4|5[1-9])\d+, "([^"]+)"|fixed\((?:4|5[1-9])\d+, "([^"]+)"`)
	found := 0
	for _, in := range []string{"driver", "internal/control"} {
		files, err := filepath.Glob(filepath.Join("..", in, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, m := range refused.FindAllStringSubmatch(document(t, strings.TrimPrefix(file, "../")), -1) {
				text, _, _ := strings.Cut(m[1]+m[2]+m[3]+m[4], "%")
				found++
				if !strings.Contains(page, strings.TrimSpace(text)) {
					t.Errorf("%s: docs/troubleshooting.md lacks %q", file, text)
				}
			}
		}
	}
	if found < 80 {
		t.Errorf("there are %d texts", found)
	}
}

// TestTutorialsForClientsWork runs each program of docs/clients.md as it stands there.
func TestTutorialsForClientsWork(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl", "python3", "curl", "lftp", "tnftp")
	rule := ""
	var programs []block
	for _, b := range blocks(t, "docs/clients.md") {
		switch b.kind {
		case "toml":
			rule = b.text
		case "perl", "python", "sh":
			if b.heading != "TLS" { // tlsclients has a test of that class
				programs = append(programs, b)
			}
		}
	}
	if rule == "" || len(programs) != 5 {
		t.Fatalf("the page has %d programs, want 5, and the rule %q", len(programs), rule)
	}
	for _, p := range programs {
		t.Run(p.heading, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, rule)
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "phone.tsv"), []byte(p.heading+"\n"))
			if err := aliasOfTnftp(dir); err != nil {
				t.Fatal(err)
			}
			interpreter := map[string][]string{"perl": {"perl", "-e"}, "python": {"python3", "-c"}, "sh": {"sh", "-c"}}[p.kind]
			host, port := split(s.v4)
			do := func() result {
				cmd := command(t, interpreter[0], interpreter[1], p.text)
				cmd.Dir = dir
				cmd.Env = append(cmd.Env, "FTP_HOST="+host, "FTP_PORT="+port, "FTP_USER="+account, "FTP_PASSWORD="+password,
					"PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
				return finish(t, cmd)
			}
			if r := do(); r.status != 0 || s.read("phone.tsv") != p.heading+"\n" {
				t.Errorf("exit status %d\n%s\nthe file is %q", r.status, r.out, s.read("phone.tsv"))
			}
			other := s.session(account)
			other.Want(257, "MKD /phone_lock")
			s.write("phone.tsv", "the other's")
			p.text = regexp.MustCompile(`WAIT \d+`).ReplaceAllString(p.text, "WAIT 1")
			if r := do(); r.status == 0 || s.read("phone.tsv") != "the other's" {
				t.Errorf("with the lock held by another: exit status %d\n%s\nthe file is %q", r.status, r.out, s.read("phone.tsv"))
			}
			other.Want(250, "RMD /phone_lock")
		})
	}
}

// aliasOfTnftp makes a directory's "ftp" tnftp: other programs of that name differ.
func aliasOfTnftp(dir string) error {
	program, err := exec.LookPath("tnftp")
	if err != nil {
		return err
	}
	return os.Symlink(program, filepath.Join(dir, "ftp"))
}

// TestDocsNameEachMetricAndNoOther compares docs/operations.md and docs/grafana.json with internal/metrics.
func TestDocsNameEachMetricAndNoOther(t *testing.T) {
	t.Parallel()
	source := document(t, "internal/metrics/metrics.go")
	known := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?:count|times|gauge|number)\("(\w+)", "[^"]*"(?:, "(\w+)")?|Name: "ftplockd_(\w+)"`).FindAllStringSubmatch(source, -1) {
		name := "ftplockd_" + m[1] + m[3]
		known[name] = true
		if m[2] != "" {
			name += "{" + m[2] + "}"
		}
		if page := document(t, "docs/operations.md"); !strings.Contains(page, "| `"+name) {
			t.Errorf("docs/operations.md has no row for %s", name)
		}
	}
	if len(known) < 20 {
		t.Errorf("there are %d metrics", len(known))
	}
	for _, file := range []string{"docs/operations.md", "docs/grafana.json"} {
		for _, name := range regexp.MustCompile(`ftplockd_[a-z_]+`).FindAllString(document(t, file), -1) {
			if name = strings.TrimSuffix(name, "_bucket"); !known[name] {
				t.Errorf("%s names %s, which is no metric", file, name)
			}
		}
	}
}

// TestOperationsNameEachWord looks up in docs/operations.md what programs of operators read: keys of hooks, messages and keys of the
// log, and the words of labels.
func TestOperationsNameEachWord(t *testing.T) {
	t.Parallel()
	page := document(t, "docs/operations.md")
	for file, words := range map[string]string{
		"internal/status/status.go": `json:"(\w+)`,
		"internal/event/log.go":     `return "([^"]+)", slog\.Level|text\("(\w+)"|slog\.\w+\("(\w+)"`,
		"driver/reply.go":           `"([a-z-]+)"\}\}|cause: "([a-z-]+)"`,
	} {
		found := regexp.MustCompile(words).FindAllStringSubmatch(document(t, file), -1)
		if len(found) < 10 {
			t.Errorf("%s has %d words", file, len(found))
		}
		for _, m := range found {
			if word := strings.Join(m[1:], ""); !strings.Contains(page, "`"+word+"`") {
				t.Errorf("docs/operations.md lacks `%s` of %s", word, file)
			}
		}
	}
}
