package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mkdirs makes a directory of the served tree, with a file in it.
func (r *running) mkdirs(name, file string) {
	r.t.Helper()
	dir := filepath.Join(r.dir, "files", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func TestWhatWasLeftInALockIsListedRestoredAndRemoved(t *testing.T) {
	for _, directories := range []bool{true, false} {
		t.Run(fmt.Sprint("directories ", directories), func(t *testing.T) {
			r := startServer(t, fmt.Sprintf("[locks]\ndirectories = %t\n", directories))
			r.expect("nothing is left over", "leftovers")
			for _, name := range []string{"/locks/a", "/locks/\xe4 \"b\"", "/locks/c"} {
				say, _ := r.login()
				say("MKD " + name)
				if got := r.store(say, name+"/f", name); !strings.HasPrefix(got, "226 ") {
					t.Fatal(got)
				}
				r.expect("broken", "break", name)
			}
			for _, args := range [][]string{{"leftovers"}, {"leftovers", "list"}} {
				out := r.expect(`"/locks/a"`, args...)
				if !regexp.MustCompile(`(?m)^ID +LOCK +HOLDER +SINCE +ENTRIES\n\d+ +"/locks/a" +"ftp" +20\d\d-\S+Z +1\n\d+ +"/locks/\\xe4 \\"b\\"" +"ftp" .* 1\n\d+ +"/locks/c" `).MatchString(out) {
					t.Errorf("%v: %s", args, out)
				}
			}
			ids := regexp.MustCompile(`(?m)^\d+`).FindAllString(r.expect("", "leftovers"), -1)
			if len(ids) != 3 {
				t.Fatalf("%q", ids)
			}
			r.expect(ids[0], "history", "/locks/a")
			r.mkdirs("taken", "f")
			for _, taken := range []string{"/taken", "/taken/f", "taken", "/", "", "."} {
				if _, errs, status := r.run("leftovers", "restore", ids[0], taken); status != exitFailure || !strings.Contains(errs, "exists already") {
					t.Errorf("restore to %q: %d, %s", taken, status, errs)
				}
			}
			for _, bad := range []string{"/no/parent", "/../../" + strings.Repeat("x", 300)} {
				if _, errs, status := r.run("leftovers", "restore", ids[0], bad); status != exitFailure {
					t.Errorf("restore to %q: %d, %s", bad, status, errs)
				}
			}
			r.expect("", "leftovers", "restore", ids[0], "/rescued")
			if b, err := os.ReadFile(filepath.Join(r.dir, "files/rescued/f")); string(b) != "/locks/a" {
				t.Errorf("%q, %v", b, err)
			}
			say, _ := r.login()
			if got := say("SIZE /rescued/f"); got != "213 8" {
				t.Error(got)
			}
			if _, errs, status := r.run("leftovers", "restore", ids[0], "/again"); status != exitFailure || !strings.Contains(errs, "nothing is left over with the ID "+ids[0]) {
				t.Errorf("twice: %d, %s", status, errs)
			}
			r.expect("", "leftovers", "remove", ids[1])
			for _, bad := range []string{ids[1], "0", "", "..", "../taken", "*"} {
				if _, errs, status := r.run("leftovers", "remove", bad); status != exitFailure || !strings.Contains(errs, "nothing is left over with the ID") {
					t.Errorf("remove %q: %d, %s", bad, status, errs)
				}
			}
			if out := r.expect(`"/locks/c"`, "leftovers"); strings.Contains(out, ids[1]+" ") || strings.Count(out, "\n") != 2 {
				t.Error(out)
			}
			if _, err := os.Stat(filepath.Join(r.dir, "files/taken/f")); err != nil {
				t.Error(err)
			}
		})
	}
}

// Those that could not be moved to the top of the tree, since a lock lies on another file system, are listed, too.
func TestLeftoversBesideTheirLockAreListed(t *testing.T) {
	r := startServer(t, "")
	r.mkdirs("mnt/.ftplockd-leftover-7,ada,%2Fmnt%2Fa_lock", "f")
	r.mkdirs("mnt/.ftplockd-lock-9", "f") // of a lock that may be held
	r.mkdirs("mnt/pictures", "f")
	out := r.expect(`"/mnt/a_lock"`, "leftovers")
	if strings.Count(out, "\n") != 2 || !regexp.MustCompile(`(?m)^7 +"/mnt/a_lock" +"ada"`).MatchString(out) {
		t.Error(out)
	}
	for _, id := range []string{"9", "pictures"} {
		if _, _, status := r.run("leftovers", "remove", id); status != exitFailure {
			t.Errorf("remove %s: %d", id, status)
		}
	}
	r.expect("", "leftovers", "remove", "7")
	r.expect("nothing is left over", "leftovers")
	for _, name := range []string{"mnt/.ftplockd-lock-9/f", "mnt/pictures/f"} {
		if _, err := os.Stat(filepath.Join(r.dir, "files", name)); err != nil {
			t.Error(err)
		}
	}
}

// A directory in the tree that only its owner may read keeps nobody from the rest.
func TestLeftoversAreListedThoughSomethingInTheTreeCannotBeRead(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	r := startServer(t, "")
	r.mkdirs("closed", "f")
	r.mkdirs(".ftplockd-leftovers/7,ada,%2Fa_lock", "f")
	closed := filepath.Join(r.dir, "files/closed")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(closed, 0o755)
	r.expect(`"/a_lock"`, "leftovers")
}
