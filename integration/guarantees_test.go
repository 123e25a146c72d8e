package integration

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocsGuaranteesNameTestsThatExist looks up each test that docs/guarantees.md names, in the package that it names.
func TestDocsGuaranteesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string]bool) // "package: name"
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
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
