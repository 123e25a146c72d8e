package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// BrokenEnv is the variable that names the guard to leave out, for servers built with Overlay.
const BrokenEnv = "FTPLOCKD_TEST_BROKEN"

// Replacement replaces a text, which must be in the file once.
type Replacement struct{ File, Old, New string }

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// Overlay writes replaced sources and the file for "go build -overlay" into dir, and returns that file. A checker that finds no fault proves something
// only if it finds one in a server without a guard. In the replaced packages the function broken reports whether the environment names a guard.
// more has additional files by their names. root is the directory of the repository.
func Overlay(root, dir string, all []Replacement, more map[string]string) (file string, err error) {
	texts := make(map[string]string)
	for name, text := range more {
		texts[name] = text
	}
	for _, r := range all {
		pkg := filepath.Dir(r.File)
		if texts[r.File] == "" {
			text, err := os.ReadFile(filepath.Join(root, r.File))
			if err != nil {
				return "", err
			}
			texts[r.File] = string(text)
		}
		clause := packageClause.FindString(texts[r.File])
		texts[pkg+"/broken.go"] = fmt.Sprintf("%s\n\nimport \"os\"\n\nfunc broken(guard string) bool { return os.Getenv(%q) == guard }\n", clause, BrokenEnv)
		if n := strings.Count(texts[r.File], r.Old); n != 1 {
			return "", fmt.Errorf("%s has %d times %q: say where the guard is now", r.File, n, r.Old)
		}
		texts[r.File] = strings.Replace(texts[r.File], r.Old, r.New, 1)
	}
	return WriteOverlay(root, dir, texts)
}

// WriteOverlay writes replaced sources, by their paths below root, and the file for "go build -overlay" into dir, and returns that file.
func WriteOverlay(root, dir string, texts map[string]string) (file string, err error) {
	if root, err = filepath.Abs(root); err != nil {
		return "", err
	}
	overlay := make(map[string]string)
	for name, text := range texts {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		overlay[filepath.Join(root, name)] = to
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}
