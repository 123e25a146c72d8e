package integration

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goSources returns the text of the project's Go files by path: its tests, or all others.
func goSources(t *testing.T, tests bool) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && strings.HasSuffix(path, "_test.go") == tests {
			path = strings.TrimPrefix(path, "../")
			all[path] = document(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// declaredTests returns the names of all tests, each as "TestName" and as "package: TestName". A script is a test, too.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	tests := make(map[string]bool)
	for path, source := range goSources(t, true) {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(source, -1) {
			tests[m[1]], tests[filepath.Dir(path)+": "+m[1]] = true, true
		}
	}
	for dir, test := range map[string]string{"server": "TestServerScripts", "netlock": "TestNetlockScripts"} {
		for _, script := range scripts(t, dir) {
			tests["integration: "+test+"/"+strings.TrimSuffix(filepath.Base(script), ".txtar")] = true
		}
	}
	return tests
}

// TestGuaranteesHaveGuards checks that each promise of docs/guarantees.md has a guard in testdata/guards.txt, and that the functions and
// tests which that file names exist.
func TestGuaranteesHaveGuards(t *testing.T) {
	t.Parallel()
	sources, tests := goSources(t, false), declaredTests(t)
	promises := make(map[string]bool) // true: a guard was found
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \|`).FindAllStringSubmatch(document(t, "docs/guarantees.md"), -1) {
		promises[m[1]] = false
	}
	for line := range strings.Lines(document(t, "integration/testdata/guards.txt")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, " | ")
		if len(columns) != 3 {
			t.Fatalf("%q has %d columns, want 3", line, len(columns))
		}
		if _, ok := promises[columns[0]]; !ok {
			t.Errorf("docs/guarantees.md has no promise %s", columns[0])
		}
		promises[columns[0]] = true
		for _, m := range regexp.MustCompile(`([\w/]+\.go), (\w+)`).FindAllStringSubmatch(columns[1], -1) {
			if !declares(sources, m[1], m[2]) {
				t.Errorf("%s: no file %s declares %s", columns[0], m[1], m[2])
			}
		}
		for part := range strings.SplitSeq(columns[2], "; ") {
			in, names, _ := strings.Cut(part, ": ")
			for name := range strings.SplitSeq(names, ", ") {
				if !tests[in+": "+name] {
					t.Errorf("%s: package %s has no test %q", columns[0], in, name)
				}
			}
		}
	}
	for promise, found := range promises {
		if !found {
			t.Errorf("promise %s has no guard in testdata/guards.txt", promise)
		}
	}
	if len(promises) < 50 {
		t.Errorf("docs/guarantees.md has %d promises", len(promises))
	}
}

// declares reports whether a file whose path ends in /file declares a function.
func declares(sources map[string]string, file, function string) bool {
	declaration := regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + function + `\b`)
	for path, text := range sources {
		if strings.HasSuffix("/"+path, "/"+file) && declaration.MatchString(text) {
			return true
		}
	}
	return false
}

// TestDocsNameTestsThatExist looks up each test that SECURITY.md names. SECURITY.md names every attack.
func TestDocsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	tests := declaredTests(t)
	page := document(t, "SECURITY.md")
	named := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(page, -1)
	for _, name := range named {
		if !tests[name] {
			t.Errorf("SECURITY.md names %s, which does not exist", name)
		}
	}
	if len(named) < 15 {
		t.Errorf("SECURITY.md names %d tests, want at least 15", len(named))
	}
	for test := range tests {
		if name, ok := strings.CutPrefix(test, "integration: "); ok && strings.HasPrefix(name, "TestAttack") && !strings.Contains(page, "`"+name+"`") {
			t.Errorf("SECURITY.md does not name %s", name)
		}
	}
}
