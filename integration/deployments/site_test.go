//go:build linux

package deployments

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// version is the content of a site: paths and texts. No two versions have a common text, so every file shows its origin.
type version struct {
	name  string
	files map[string]string
}

// newVersion returns a version of 20 pages in four directories, with a page and a directory of its own.
func newVersion(name string) version {
	v := version{name, make(map[string]string)}
	add := func(file string) {
		v.files[file] = strings.Repeat(fmt.Sprintf("%s of version %s\n", file, name), 20+len(name))
	}
	for i := range 20 {
		add(fmt.Sprintf("part%d/page%02d.html", i%4, i))
	}
	add("index.html")
	add("only-" + name + ".html")
	add("assets-" + name + "/style.css")
	return v
}

// write makes the version's files below a directory, which then contains nothing else but names with a leading dot.
func (v version) write(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	for file, text := range v.files {
		name := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// state reports whether a path is a deployment program's record of what it deployed.
func state(file string) bool {
	return slices.Contains([]string{".git-ftp.log", ".ftp-deploy-sync-state.json", ".htdeployment"}, path.Base(file))
}

// content reads the files below a directory, without records of deployment programs.
func content(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		file, _ := filepath.Rel(dir, name)
		if state(file) {
			return nil
		}
		text, err := os.ReadFile(name)
		found[filepath.ToSlash(file)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// compare returns the differences between the found files and the version; none means that they are the same.
func (v version) compare(found map[string]string) (differences []string) {
	for file, text := range v.files {
		if got, ok := found[file]; !ok {
			differences = append(differences, file+" is missing")
		} else if got != text {
			first, _, _ := strings.Cut(got, "\n")
			differences = append(differences, fmt.Sprintf("%s has %q in %d bytes", file, first, len(got)))
		}
	}
	for file := range found {
		if _, ok := v.files[file]; !ok {
			differences = append(differences, file+" is left over")
		}
	}
	slices.Sort(differences)
	return differences
}

// identify returns the version whose files the directory has, or false for a mixture.
func identify(found map[string]string, all ...version) (version, bool) {
	for _, v := range all {
		if len(v.compare(found)) == 0 {
			return v, true
		}
	}
	return version{}, false
}

// git runs git in a directory.
func git(t testing.TB, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@localhost"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}
