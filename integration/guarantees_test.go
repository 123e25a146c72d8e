package integration

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goFiles are the project's files that are tests, or are none, by path.
func goFiles(t *testing.T, tests bool) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && strings.HasSuffix(path, "_test.go") == tests {
			all[path] = document(t, strings.TrimPrefix(path, "../"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// declaredTests are all tests of the project, "package: name".
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	tests := make(map[string]bool)
	for path, source := range goFiles(t, true) {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(source, -1) {
			tests[strings.TrimPrefix(filepath.Dir(path), "../")+": "+m[1]] = true
		}
	}
	return tests
}

// TestDocsGuaranteesNameGuardsThatExist looks for each function that docs/guarantees.md names as a guard, in the file that it names.
func TestDocsGuaranteesNameGuardsThatExist(t *testing.T) {
	t.Parallel()
	all := goFiles(t, false)
	for line := range strings.Lines(document(t, "docs/guarantees.md")) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 5 {
			continue
		}
		file, source := "", ""
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1) {
			word := m[1]
			if strings.HasSuffix(word, ".go") {
				file, source = word, ""
				for path, text := range all {
					if strings.HasSuffix(path, "/"+file) {
						source += text
					}
				}
				continue
			}
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(source) {
				t.Errorf("there is no %s in %s: %s", word, file, cells[0])
			}
		}
	}
}

// TestDocsNameTestsThatExist looks up each test that a page names: in docs/guarantees.md in the package that it names, elsewhere anywhere. SECURITY.md
// names each attack.
func TestDocsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	tests := declaredTests(t)
	anywhere := make(map[string]bool)
	for test := range tests {
		_, name, _ := strings.Cut(test, ": ")
		anywhere[name] = true
		if strings.HasPrefix(test, "integration: TestAttack") && !strings.Contains(document(t, "SECURITY.md"), "`"+name+"`") {
			t.Errorf("SECURITY.md does not name %s", name)
		}
	}
	for page, least := range map[string]int{"docs/guarantees.md": 60, "SECURITY.md": 15, "docs/examples.md": 30} {
		named := 0
		for line := range strings.Lines(document(t, page)) {
			in := ""
			for _, m := range regexp.MustCompile("`([a-z/]+)`: |\\b(Test[A-Z]\\w+)").FindAllStringSubmatch(line, -1) {
				switch {
				case m[1] != "":
					in = m[1]
					continue
				case in == "" && !anywhere[m[2]], in != "" && !tests[in+": "+m[2]]:
					t.Errorf("%s: there is no test %s: %s", page, m[2], line)
				}
				named++
			}
		}
		if named < least {
			t.Errorf("%s names %d tests", page, named)
		}
	}
}
