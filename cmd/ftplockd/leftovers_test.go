package main

import (
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

// Package integration tests how the server makes leftovers.
func TestLeftoversAreListedRestoredAndRemoved(t *testing.T) {
	r := startServer(t, "[ftp]\nstatus_file = '/.status'\n[locks]\ndirectories = false\n")
	r.expect("there are no leftovers", "leftovers")
	const top = ".ftplockd-leftovers/"
	for _, dir := range []string{top + "4,ftp,%2Flocks%2Fa", top + "5,ftp,%2Flocks%2F%E4%20%22b%22", "taken", "mnt/pictures"} {
		r.mkdirs(dir, "f")
	}
	marked := filepath.Join(r.dir, "files", top+"4,ftp,%2Flocks%2Fa")
	if err := os.Chmod(marked, 0o750|os.ModeSticky); err != nil { // as hostdir makes it
		t.Fatal(err)
	}
	r.mkdirs("py/caf\xe9/.ftplockd-leftover-6,ada,%2Fd", "f")
	r.mkdirs("mnt/.ftplockd-leftover-7,ada,%2Fmnt%2Fc", "f") // a lock on another file system has its leftovers beside it
	out := r.expect(`"/locks/a"`, "leftovers")
	if !regexp.MustCompile(`^ID +LOCK +HOLDER +SINCE +ENTRIES\n4 +"/locks/a" +"ftp" +20\d\d-\S+Z +1\n5 +"/locks/\\xe4 \\"b\\"" +"ftp" .* 1\n7 +"/mnt/c" +"ada" .* 1\n6 +"/d" +"ada" .* 1\n$`).MatchString(out) {
		t.Error(out)
	}
	refused := func(says string, args ...string) {
		t.Helper()
		r.refuses(exitFailure, says, append([]string{"leftovers"}, args...)...)
	}
	for _, taken := range []string{"/taken", "/taken/f", "taken", "/", "", "."} {
		refused("exists already", "restore", "4", taken)
	}
	for _, bad := range []string{"/no/parent", "/../../" + strings.Repeat("x", 300)} {
		refused("", "restore", "4", bad)
	}
	if err := os.Symlink("locks", filepath.Join(r.dir, "files/link")); err != nil {
		t.Fatal(err)
	}
	session := r.login()
	session.Want(257, "MKD /locks/held")
	for _, name := range []string{"/locks/held", "/locks/free", "/taken/a_lock", "/link/a"} {
		refused("is the name of a lock", "restore", "4", name)
	}
	for _, name := range []string{"/.ftplockd-leftovers/4,x", "/.ftplockd-leftover-4", "/taken/.ftplockd-leftover-4", "/.ftplockd-1-1", "/.status"} {
		refused("is a name that the server uses", "restore", "4", name)
	}
	r.expect("", "leftovers", "restore", "4", "/rescued")
	session.Want(213, "SIZE /rescued/f", "1")
	if info, err := os.Stat(filepath.Join(r.dir, "files/rescued")); err != nil || info.Mode() != 0o750|os.ModeDir {
		t.Errorf("the restored directory has the mode %v, %v", info.Mode(), err)
	}
	refused("there are no leftovers with the ID 4", "restore", "4", "/again")
	r.expect("", "leftovers", "remove", "5")
	for _, bad := range []string{"5", "9", "pictures", "0", "", "..", "../taken", "*"} {
		refused("there are no leftovers with the ID", "remove", bad)
	}
	r.expect("", "leftovers", "remove", "7")
	r.expect("", "leftovers", "restore", "6", "/rescued/caf\xe9")
	r.expect("there are no leftovers", "leftovers")
	for _, name := range []string{"mnt/pictures/f", "taken/f"} {
		if _, err := os.Stat(filepath.Join(r.dir, "files", name)); err != nil {
			t.Error(err)
		}
	}
}

func TestLeftoversSkipsUnreadableDirectories(t *testing.T) {
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
