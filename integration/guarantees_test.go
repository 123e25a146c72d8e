package integration

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// declaredTests returns the names of all tests, each as "TestName" and as "package: TestName".
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	tests := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			path = strings.TrimPrefix(path, "../")
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(document(t, path), -1) {
				tests[m[1]], tests[filepath.Dir(path)+": "+m[1]] = true, true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
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
