package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// declaredTests are all tests of the project, "package: name".
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	tests := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			tests[strings.TrimPrefix(filepath.Dir(path), "../")+": "+m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// productionSources are the files that are no tests, by path.
func productionSources(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		all[path] = string(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestDocsGuaranteesNameGuardsThatExist looks for each function that docs/guarantees.md names as a guard, in the file that it names.
func TestDocsGuaranteesNameGuardsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	all := productionSources(t)
	for line := range strings.Lines(string(text)) {
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

// TestDocsGuaranteesNameTestsThatExist looks up each test that docs/guarantees.md names, in the package that it names.
func TestDocsGuaranteesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := declaredTests(t)
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 5 || !strings.Contains(cells[4], "Test") {
			continue
		}
		rows++
		in := ""
		for _, m := range regexp.MustCompile("`([a-z/]+)`: |(Test\\w+)").FindAllStringSubmatch(cells[4], -1) {
			if m[1] != "" {
				in = m[1]
			} else if !tests[in+": "+m[2]] {
				t.Errorf("there is no test %s in %s: %s", m[2], in, cells[0])
			}
		}
	}
	if rows < 60 {
		t.Errorf("the page has %d rows with a test", rows)
	}
}

// TestSecurityNamesTestsThatExist looks up each test that SECURITY.md names, and that it names each attack.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = true
	}
	for test := range declaredTests(t) {
		in, name, _ := strings.Cut(test, ": ")
		if in == "integration" && strings.HasPrefix(name, "TestAttack") && !named[name] {
			t.Errorf("SECURITY.md does not name %s", name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("there is no test %s", name)
	}
}
