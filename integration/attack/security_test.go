package attack

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesTestsThatExist looks up each test that SECURITY.md names for an attack, and that each attack is named there.
func TestSecurityNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	table := string(text[strings.Index(string(text), "| attack |"):])
	table = table[:strings.Index(table, "\n\n")]
	named := make(map[string]bool)
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(table, -1) {
		named[m[1]] = true
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file == "harness_test.go" || file == "security_test.go" {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(source), -1) {
			if !named[m[1]] {
				t.Errorf("SECURITY.md does not name %s", m[1])
			}
			delete(named, m[1])
		}
	}
	for name := range named {
		t.Errorf("there is no test %s", name)
	}
}
