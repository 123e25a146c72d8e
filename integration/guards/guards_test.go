package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestGuaranteesHaveGuards checks that each entry of the list applies and names tests that exist, and that each promise has an entry.
func TestGuaranteesHaveGuards(t *testing.T) {
	all, err := Parse(read(t, File))
	if err != nil {
		t.Fatalf("%s: %v", File, err)
	}
	promises := make(map[string]bool) // true: it has an entry
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \|`).FindAllStringSubmatch(read(t, "docs/guarantees.md"), -1) {
		promises[m[1]] = false
	}
	for _, e := range all {
		if err := e.Check(root); err != nil {
			t.Errorf("%s: %v", e.String(), err)
		}
		if _, ok := promises[e.Promise]; !ok {
			t.Errorf("%s: docs/guarantees.md has no such promise", e.String())
		}
		promises[e.Promise] = true
	}
	for promise, found := range promises {
		if !found {
			t.Errorf("%s has no entry for promise %s", File, promise)
		}
	}
	if len(promises) < 50 || len(all) < 150 {
		t.Errorf("found %d promises and %d entries", len(promises), len(all))
	}
}

// module writes a module of one package with a guard, and a list with the removal of that guard.
func module(t *testing.T, test, change string) runner {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{
		"go.mod":        "module m\n",
		"p/p.go":        "package p\n\nfunc Abs(n int) int {\n\tif n < 0 {\n\t\treturn -n\n\t}\n\treturn n\n}\n",
		"p/p_test.go":   "package p\n\nimport \"testing\"\n\nfunc TestAbs(t *testing.T) {\n\t" + test + "\n}\n",
		File:            "promise L1: a guard\ntest p: TestAbs\nfile p/p.go\n" + change,
		"p/other.go":    "package p\n",
		"p/testdata/go": "",
	} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return runner{root: dir, timeout: 0, log: t.Output()}
}

func TestEntries(t *testing.T) {
	const needs, ignores = "if Abs(-1) != 1 {\n\t\tt.Fatal()\n\t}", "Abs(-1)"
	for _, c := range []struct{ name, test, change, want string }{
		{"red", needs, "-if n < 0 {\n+if false {\n", ": red\n1 guards, 0 without"},
		{"a test that passes", ignores, "-if n < 0 {\n+if false {\n", ": GREEN: p TestAbs\n1 guards, 1 without"},
		{"a test that is skipped", "t.Skip()", "-if n < 0 {\n+if false {\n", ": SKIPPED: p TestAbs\n1 guards, 1 without"},
		{"a change that does not build", needs, "-if n < 0 {\n+if n {\n", ": DOES NOT BUILD: p TestAbs\n1 guards, 1 without"},
		{"a script that does not run", "if Abs(-1) != 1 {\n\t\tt.Fatal()\n\t}", "test p: TestAbs/none\n", "package p has no test"},
		{"text that has gone", needs, "-if n < 1 {\n+if false {\n", "p/p.go has 0 times"},
		{"text that is there twice", needs, "-}\n", "p/p.go has 2 times"},
		{"lines above and below", needs, " if n < 0 {\n-return -n\n+return n\n }\n return n\n", ": red\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			ok, err := module(t, c.test, c.change).entries(&out, regexp.MustCompile("L1"), false)
			if isRed := strings.Contains(c.want, "red"); err != nil || ok != isRed || !strings.Contains(out.String(), c.want) {
				t.Errorf("got %v, %v, %q, want %q", ok, err, out.String(), c.want)
			}
		})
	}
}

func TestDraw(t *testing.T) {
	for test, want := range map[string]string{
		"if Abs(-1) != 1 {\n\t\tt.Fatal()\n\t}": "seed 7, 1 guards\np/p.go:4: if n < 0 {: red\nseed 7: 1 guards drawn, 0 survive\n",
		"Abs(-1)":                               "seed 7, 1 guards\np/p.go:4: if n < 0 {: green\nseed 7: 1 guards drawn, 1 survive\n",
	} {
		var out strings.Builder
		if err := module(t, test, "").draw(&out, 3, 7, regexp.MustCompile("")); err != nil || out.String() != want {
			t.Errorf("got %v, %q, want %q", err, out.String(), want)
		}
	}
}

// TestGuardsOf shows which conditions are guards, and how the file is without each.
func TestGuardsOf(t *testing.T) {
	const text = `package p

func f(n int, err error) error {
	if n == 1 || n == 2 {
		return nil
	}
	if err != nil {
		return err
	}
	if n == 3 {
		n++
	}
	switch {
	case n == 4, n == 5:
		return nil
	}
	switch n {
	case 6:
		return nil
	}
	return nil
}
`
	all, err := guardsOf("p.go", text)
	if err != nil || len(all) != 3 {
		t.Fatalf("got %d guards, %v, want 3", len(all), err)
	}
	for i, want := range []string{"if false && (n == 1 || n == 2) {", "case false:\n", "switch n {\n\t\n\t}"} {
		if !strings.Contains(all[i].without, want) {
			t.Errorf("%s: got %s, want %q", all[i].source, all[i].without, want)
		}
	}
}
