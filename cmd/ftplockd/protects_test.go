package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// begin begins an upload over a session and returns its data connection and the reply.
func (r *running) begin(say func(string) string, name string) (data net.Conn, reply string) {
	r.t.Helper()
	var port int
	if _, err := fmt.Sscanf(strings.TrimPrefix(say("EPSV"), "229"), " Entering Extended Passive Mode (|||%d|)", &port); err != nil {
		r.t.Fatal(err)
	}
	data, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { data.Close() })
	return data, say("STOR " + name)
}

// store uploads over a session and returns the final reply. The one to the NOOP behind it is what
// the session's next command returns.
func (r *running) store(say func(string) string, name, content string) string {
	r.t.Helper()
	data, reply := r.begin(say, name)
	if !strings.HasPrefix(reply, "150 ") {
		return reply
	}
	io.WriteString(data, content)
	data.Close()
	return say("NOOP")
}

const phone = "[[lock]]\nmatch = '**/*_lock'\nprotects = ['$1/$2.tsv']\n"

func TestHistoryOfAFileNamesHolderTokenAndDigest(t *testing.T) {
	r := startServer(t, phone)
	say, _ := r.login()
	if got := r.store(say, "/phone.tsv", "x"); got != "550 /phone.tsv: protected by the lock /phone_lock, which you do not hold" {
		t.Error(got)
	}
	say("TYPE I")
	say("MKD /phone_lock")
	if got := r.store(say, "/phone.tsv", "abc"); !strings.HasPrefix(got, "226 ") {
		t.Fatal(got)
	}
	say("RMD /phone_lock")
	want := "/phone.tsv under /phone_lock, 3 bytes, sha256 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	for _, name := range []string{"/phone.tsv", "/phone_lock"} {
		out := r.expect(want, "history", name)
		for l := range strings.Lines(out) {
			if strings.Contains(l, want) && (!strings.Contains(l, "publish") || !strings.Contains(l, "ftp@127.0.0.1") || !strings.Contains(l, "1-1")) {
				t.Error(l)
			}
		}
	}
	r.logs("path=/phone.tsv", "lock=/phone_lock", "token=1")
}

// With no error are those that are right: a status file may have a lock's name, but hide no directory of locks.
func TestWhatTheLocksDoNotAllowIsAnErrorWithItsLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.toml")
	for text, want := range map[string]string{
		"[[lock]]\nmatch = '**/*_lock'\nprotects = [\n'$1/$2.tsv',\n'$1/$3']\n":      "f.toml:3: lock[1].protects[2]: \"$1/$3\": $3: match has 2 wildcards",
		"[[lock]]\nmatch = '/a/*'\n[[lock]]\nmatch = '/b/*'\nprotects = ['/a/$1']\n": "f.toml:5: lock[2].protects[1]: \"/a/$1\": protects no file: /a/~ is the name of a lock of rule 1 (match \"/a/*\")",
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
