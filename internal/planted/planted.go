// Package planted shows that a test can fail: it plants bugs in the code that the test is for.
package planted

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Bug is a change of the package under test: its name, the file, a text that stands there once, and the text that replaces it.
type Bug [4]string

// Find plants one bug at a time and expects that the test fails. It draws n of the bugs at random; -1: all. The test is TestNAME of the
// package in the current directory; args are its flags. All bugs are checked to apply, also those that are not drawn.
func Find(t *testing.T, name string, bugs []Bug, n int, args ...string) {
	t.Helper()
	for drawn, i := range rand.Perm(len(bugs)) {
		bug, file, is, becomes := bugs[i][0], bugs[i][1], bugs[i][2], bugs[i][3]
		source, err := os.ReadFile(file)
		if err != nil || strings.Count(string(source), is) != 1 {
			t.Errorf("%s does not contain %q once: %v", file, is, err)
			continue
		}
		if n < 0 || drawn < n {
			t.Run(bug, func(t *testing.T) {
				line := append([]string{"test", "-overlay", overlay(t, file, strings.Replace(string(source), is, becomes, 1)), "-run", "^Test" + name + "$", "-count", "1", "-timeout", "5m"}, args...)
				out, err := exec.CommandContext(t.Context(), "go", append(line, ".")...).CombinedOutput()
				switch {
				case err == nil:
					t.Errorf("Test%s did not find it", name)
				case !strings.Contains(string(out), "--- FAIL: Test"+name) && !strings.Contains(string(out), "panic:"):
					t.Errorf("Test%s did not run: %s", name, out)
				}
			})
		}
	}
}

// overlay returns a file for the flag -overlay of go that replaces the text of a file.
func overlay(t *testing.T, file, text string) string {
	t.Helper()
	here, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replaced, overlay := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {here: replaced}})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{replaced: text, overlay: string(replace)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
