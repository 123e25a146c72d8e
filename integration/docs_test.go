package integration

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// documents returns the pages of the repository by their paths.
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

// anchor returns GitHub's anchor of a heading.
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

// TestReadmeLinksEachPage checks that README.md links each page of docs and each page beside it.
func TestReadmeLinksEachPage(t *testing.T) {
	t.Parallel()
	readme := document(t, "README.md")
	for name := range documents(t) {
		if name != "README.md" && !strings.HasPrefix(name, "examples/") && !strings.Contains(readme, "]("+name+")") {
			t.Errorf("README.md does not link %s", name)
		}
	}
}

// TestDocsGiveAReasonForEachDependency looks up each module of go.mod in docs/libraries.md, and the versions of those that the page describes.
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

// selfExplaining are refusals to which docs/troubleshooting.md could add nothing: the texts state the cause and the remedy, or only the log has more.
var selfExplaining = []string{
	// Locks.
	"a file has that name", "is a lock: only MKD acquires it and RMD releases it",
	"is the name of a lock: only MKD makes it", "the directory above it does not exist", "only administrators break locks", "the directory is not empty: remove what is in it first",
	"there are held locks below it",
	// Files.
	"a path component is not a directory", "cannot be moved into itself", "is a directory", "generated on each read: it has no fixed size",
	"has too many names for -t, -S and -r: list it without them", "is the root of the tree", "required by a lock rule", "invalid file name",
	"not a regular file", "is a link: DELE removes it, and not its target", "is not a directory", "is served by the server itself and cannot be changed", "no such file or directory", "the directory is not empty",
	"a directory above it was moved meanwhile", "a link in its path was changed at the same moment: try again", "an unfinished upload lies in it: wait for its end",
	"larger than a file may be", "no space left", "protected files are being changed: try again", "QUIT came before the upload was complete; ALLO announces its length",
	"REST beyond the end of the file", "generated on each read: send no REST", "REST needs TYPE I: in TYPE A line ends have other lengths", "the file has become shorter meanwhile", "the quota is used up",
	"was changed, renamed or removed during the upload: try again", "was removed on another machine: try again", "was replaced at the same moment: try again",
	"the server lost the upload: another server took over, or a program removed it; try again",
	"the file system is read-only", "this account may not change files", "this account may not change modes", "this account may not read files", "too many links",
	// Sessions.
	"fewer bytes than ALLO announced:", "the client hung up before the transfer was confirmed", "the data connection was cut", "the login took too long",
	"internal error", "aborted", "aborted by ABOR", "the session ended before the digest was complete", "please log in with USER and PASS", "only PROT P and PROT C are supported",
	"more than 64 KiB of commands while another one runs", "too much work for a pattern: shorten it", "use PASV, EPSV, PORT or EPRT first",
	"data connections must be encrypted: send PROT P first", "PASV is for IPv4 only: use EPSV", "the server ended the session", "the server is shutting down",
	"this server requires PROT P", "this server requires TLS: send AUTH TLS first", "TLS is not configured on this server", "use (", "use (1,2)",
	"use the family of the control connection (", "you are logged in already: reconnect to use another account",
}

// TestTroubleshootingHasEveryRefusal looks up the texts of refusals in docs/troubleshooting.md, except those that explain themselves and
// those of 500 to 504, which are about the form and order of commands.
func TestTroubleshootingHasEveryRefusal(t *testing.T) {
	t.Parallel()
	page := strings.ReplaceAll(document(t, "docs/troubleshooting.md"), `\|`, "|")
	refused := regexp.MustCompile(`Code: (?:4|5[1-9])\d+, Text: (?:fmt\.Sprintf\()?"([^"]+)"|&refusal\{(?:code: \d+, )?(?:cause: "[a-z-]+", )?text: (?:fmt\.Sprintf\()?"([^"]+)"|\{(?:is\(.+\)|as.+\]), (?:4|5[1-9])\d+, "([^"]+)"|fixed\((?:4|5[1-9])\d+, "([^"]+)"`)
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
				if text = strings.TrimSpace(text); !strings.Contains(page, text) && !slices.Contains(selfExplaining, text) {
					t.Errorf("%s: docs/troubleshooting.md lacks %q", file, text)
				}
			}
		}
	}
	if found < 80 {
		t.Errorf("there are %d texts", found)
	}
}

// TestProgramsForClientsWork runs each program of docs/clients.md as it stands there.
func TestProgramsForClientsWork(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl", "python3", "curl", "lftp", "tnftp")
	rule := ""
	var programs []block
	for _, b := range blocks(t, "docs/clients.md") {
		switch {
		case b.heading == "A job of cron": // TestCronRecipes
		case b.kind == "toml":
			rule = b.text
		case b.kind == "perl", b.kind == "python", b.kind == "sh":
			programs = append(programs, b)
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
			other := s.session(account) // a job with a connection for each command
			other.Want(200, "SITE LOCK AS other")
			other.Want(257, "MKD /phone_lock")
			other.Want(221, "QUIT")
			harness.Await(t, "the other's connection ends", func() bool { return len(s.sessions(account)) == 0 })
			s.write("phone.tsv", "the other's")
			p.text = regexp.MustCompile(`WAIT \d+`).ReplaceAllString(p.text, "WAIT 1")
			if r := do(); r.status == 0 || s.read("phone.tsv") != "the other's" {
				t.Errorf("with the lock held by another: exit status %d\n%s\nthe file is %q", r.status, r.out, s.read("phone.tsv"))
			}
			other = s.session(account)
			other.Want(200, "SITE LOCK AS other")
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
	seen := make(map[string]bool)
	for _, r := range file.Groups[0].Rules {
		switch {
		case !strings.HasPrefix(r.Alert, "Ftplockd") || seen[r.Alert]:
			t.Errorf("the name %q", r.Alert)
		case strings.Count(r.Expr, "(") != strings.Count(r.Expr, ")") || strings.Count(r.Expr, "[") != strings.Count(r.Expr, "]"):
			t.Errorf("%s: %s", r.Alert, r.Expr)
		case !regexp.MustCompile(`\bftplockd_\w+.* (<|>|==|!=) [\d.]`).MatchString(r.Expr):
			t.Errorf("%s compares no metric with a number: %s", r.Alert, r.Expr)
		}
		seen[r.Alert] = true
	}
	if len(seen) < 8 {
		t.Errorf("%d alarms", len(seen))
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
