package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

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

// block is a block of code on a page.
type block struct{ heading, kind, text string } // of the heading above it, without "## "; "": none

// blocks returns the blocks of code of a page in their order.
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

// files returns the files of the repository whose names end in suffix, by their paths.
func files(t *testing.T, suffix string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "dist"):
			return filepath.SkipDir
		case strings.HasSuffix(path, suffix):
			name := strings.TrimPrefix(path, "../")
			all[name] = document(t, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anchor returns GitHub's anchor of a heading.
func anchor(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(heading))
	return strings.ReplaceAll(regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(heading, ""), " ", "-")
}

func TestDocsLinksHaveTargets(t *testing.T) {
	t.Parallel()
	pages := files(t, ".md")
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

// TestSecurityNamesTestsThatExist looks up each test of an attack that SECURITY.md names.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	for _, text := range files(t, "_test.go") {
		tests.WriteString(text)
	}
	named := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(document(t, "SECURITY.md"), -1)
	for _, name := range named {
		if !strings.Contains(tests.String(), "\nfunc "+name+"(") {
			t.Errorf("SECURITY.md names %s, which does not exist", name)
		}
	}
	if len(named) == 0 {
		t.Error("SECURITY.md names no test")
	}
}

// TestTroubleshootingQuotesTheServer looks up the texts in the tables of docs/troubleshooting.md in the strings of the sources: users search the page
// for the text that they got. It compares the words between names, numbers and punctuation.
func TestTroubleshootingQuotesTheServer(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	for name, text := range files(t, ".go") {
		if !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "integration/") {
			for _, literal := range regexp.MustCompile("\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`").FindAllString(text, -1) {
				said.WriteString(literal)
			}
		}
	}
	variable, found := regexp.MustCompile(`[.,:;()]+|\S*[\d@]\S*|\b[A-Z]+\b`), 0
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \| `).FindAllStringSubmatch(document(t, "docs/troubleshooting.md"), -1) {
		ours, _, _ := strings.Cut(row[1], " shows ") // what a client shows
		for _, quoted := range regexp.MustCompile("`[^`]+`").FindAllString(ours, -1) {
			for _, words := range variable.Split(strings.Trim(quoted, "`"), -1) {
				if words = strings.TrimSpace(words); strings.Contains(words, " ") {
					found++
					if !strings.Contains(said.String(), words) {
						t.Errorf("the page has %s, but the server says nowhere %q", quoted, words)
					}
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("the page has %d texts", found)
	}
}

// TestProgramsForClientsWork runs the programs of docs/clients.md in Perl and Python as they stand there. TestCronRecipes runs those of the shell.
func TestProgramsForClientsWork(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl", "python3")
	interpreters := map[string][]string{"perl": {"perl", "-e"}, "python": {"python3", "-c"}}
	rule := ""
	var programs []block
	for _, b := range blocks(t, "docs/clients.md") {
		if b.kind == "toml" {
			rule = b.text
		} else if interpreters[b.kind] != nil {
			programs = append(programs, b)
		}
	}
	if rule == "" || len(programs) != 2 {
		t.Fatalf("the page has %d programs, want 2, and the rule %q", len(programs), rule)
	}
	for _, p := range programs {
		t.Run(p.heading, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, rule)
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "phone.tsv"), []byte(p.heading+"\n"))
			do := func(text string) result {
				cmd := s.exampleCommand(t, append(interpreters[p.kind], text)...)
				cmd.Dir = dir
				return finish(t, cmd)
			}
			if r := do(p.text); r.status != 0 || s.read("phone.tsv") != p.heading+"\n" {
				t.Errorf("exit status %d\n%s\nthe file is %q", r.status, r.out, s.read("phone.tsv"))
			}
			s.whileAnotherHolds("/phone_lock", func() {
				s.write("phone.tsv", "the other's")
				if r := do(strings.Replace(p.text, "WAIT 90", "WAIT 1", 1)); r.status == 0 || s.read("phone.tsv") != "the other's" {
					t.Errorf("with the lock held by another: exit status %d\n%s\nthe file is %q", r.status, r.out, s.read("phone.tsv"))
				}
			})
		})
	}
}

// whileAnotherHolds calls do while a job with a connection for each command holds a lock.
func (s *server) whileAnotherHolds(lock string, do func()) {
	s.t.Helper()
	other := s.session(account)
	other.Want(200, "SITE LOCK AS other")
	other.Want(257, "MKD "+lock)
	other.Want(221, "QUIT")
	harness.Await(s.t, "the other's connection ends", func() bool { return len(s.sessions(account)) == 0 })
	do()
	other = s.session(account)
	other.Want(200, "SITE LOCK AS other")
	other.Want(250, "RMD "+lock)
}

// TestDocsNameMetrics compares docs/operations.md and docs/grafana.json with internal/metrics. The page has each metric with a label, because
// /metrics describes the metrics but not the values of labels.
func TestDocsNameMetrics(t *testing.T) {
	t.Parallel()
	source := document(t, "internal/metrics/metrics.go")
	known := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?:count|times|gauge|number)\("(\w+)", "[^"]*"(?:, "(\w+)")?|Name: "ftplockd_(\w+)"`).FindAllStringSubmatch(source, -1) {
		name := "ftplockd_" + m[1] + m[3]
		known[name] = true
		if label := name + "{" + m[2] + "}"; m[2] != "" && !strings.Contains(document(t, "docs/operations.md"), "`"+label+"`") {
			t.Errorf("docs/operations.md lacks %s", label)
		}
	}
	if len(known) < 20 {
		t.Errorf("there are %d metrics", len(known))
	}
	for _, file := range []string{"docs/operations.md", "docs/grafana.json", "docs/cluster-alarms.yml", "docs/production.md", "docs/cluster.md", "docs/cluster-reference.md"} {
		for _, name := range regexp.MustCompile(`ftplockd_[a-z_]+`).FindAllString(document(t, file), -1) {
			if name = strings.TrimSuffix(name, "_bucket"); !known[name] {
				t.Errorf("%s names %s, which is no metric", file, name)
			}
		}
	}
}

// TestAlarmsAreRulesOfPrometheus parses the file of alarms. Prometheus refuses unknown keys, so the test does, too.
func TestAlarmsAreRulesOfPrometheus(t *testing.T) {
	t.Parallel()
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr string
				For         time.Duration
			}
		}
	}
	d := yaml.NewDecoder(strings.NewReader(document(t, "docs/cluster-alarms.yml")))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil || len(file.Groups) != 1 {
		t.Fatal(file, err)
	}
	for _, r := range file.Groups[0].Rules {
		if !regexp.MustCompile(`\bftplockd_\w+.* (<|>|==|!=) [\d.]`).MatchString(r.Expr) {
			t.Errorf("%s compares no metric with a number: %s", r.Alert, r.Expr)
		}
	}
}

// TestOperationsNameEachWord looks up in docs/operations.md the words for which programs of operators search: messages and keys of the log, and
// values of labels. It leaves out the keys of JSON, because --json prints them, and most names explain themselves.
func TestOperationsNameEachWord(t *testing.T) {
	t.Parallel()
	page := document(t, "docs/operations.md")
	for file, words := range map[string]string{
		"internal/event/log.go": `return "([^"]+)", slog\.Level|text\("(\w+)"|slog\.\w+\("(\w+)"`,
		"driver/reply.go":       `"([a-z-]+)"\},|cause: "([a-z-]+)"`,
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
