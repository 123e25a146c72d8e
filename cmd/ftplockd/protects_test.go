package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHistoryOfAFileHasHolderTokenAndDigest(t *testing.T) {
	r := startServer(t, "[[lock]]\nmatch = '**/*_lock'\nprotects = ['$1/$2.tsv']\n")
	session := r.login()
	session.Want(200, "TYPE I")
	session.Want(257, "MKD /phone_lock")
	if err := session.Store("/phone.tsv", []byte("abc")); err != nil {
		t.Fatal(err)
	}
	session.Want(250, "RMD /phone_lock")
	want := "/phone.tsv under /phone_lock, 3 bytes, sha256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	for _, name := range []string{"/phone.tsv", "/phone_lock"} {
		out := r.expect(want, "history", name)
		for l := range strings.Lines(out) {
			if strings.Contains(l, want) && (!strings.Contains(l, "publish") || !strings.Contains(l, "ftp@127.0.0.1") || !strings.Contains(l, "1-1")) {
				t.Error(l)
			}
		}
	}
	r.log.AwaitLine(t, "path=/phone.tsv", "lock=/phone_lock", "token=1")
}

// In TestConfigCheckReportsErrorsOfRules "" means correct. A status file can have the name of a lock, but not of a directory of locks.
func TestConfigCheckReportsErrorsOfRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.toml")
	for text, want := range map[string]string{
		"[[lock]]\nmatch = '**/*_lock'\nprotects = [\n'$1/$2.tsv',\n'$1/$3']\n":      "f.toml:3: lock[1].protects[2]: \"$1/$3\": $3: match has 2 wildcards",
		"[[lock]]\nmatch = '/a/*'\n[[lock]]\nmatch = '/b/*'\nprotects = ['/a/$1']\n": "f.toml:5: lock[2].protects[1]: \"/a/$1\": protects no file: /a/~ is the name of a lock of rule 1 (match \"/a/*\")",
		"root = 'r'\n[[lock]]\nmatch = '/a'\n[[lock]]\nmatch = '/a/*'\n":             "f.toml:2: lock: lock rule 1 (match \"/a\"): another rule needs this name as a plain directory\n",
		"[ftp]\nstatus_file = '/locks'\n":                                            "f.toml:2: ftp.status_file",
		"[ftp]\nstatus_file = '/locks/x.json'\n":                                     "", "[ftp]\nstatus_file = '/locks.json'\n": "", "[ftp]\nstatus_file = ''\n": "",
		"[[lock]]\nmatch = '/a/*'\nmax_agee = '1s'\nprotects = ['/x']\n[[lock]]\nmatch = '[x'\n": "f.toml:3: lock[1].max_agee",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			if _, errs, status := runCommand(t.Context(), "config", "check", file); status != exitOK {
				t.Errorf("%s: status %d, %s", text, status, errs)
			}
			continue
		}
		for _, args := range [][]string{{"config", "check", file}, {"serve", "--config", file}} {
			_, errs, status := runCommand(t.Context(), args...)
			if status != exitUsage || !strings.Contains(errs, want) {
				t.Errorf("%v: status %d, %s\nwant %s", args, status, errs, want)
			}
		}
	}
}
