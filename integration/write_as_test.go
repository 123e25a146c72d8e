package integration

import (
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// The recipe of docs/locks.md for clients that make a connection for each command, and what they are told without it.
func TestAJobWithAConnectionForEachCommandWritesByItsWord(t *testing.T) {
	t.Parallel()
	harness.Need(t, "curl")
	s := startServer(t, "[[lock]]\nmatch = \"**/*_lock\"\nprotects = [\"$1/$2.tsv\"]\n")
	file := t.TempDir() + "/phone.tsv"
	curl := func(url string, args ...string) result {
		t.Helper()
		return run(t, "curl", append(args, "-sS", "-u", account+":"+password, "ftp://"+s.v4+"/"+url)...)
	}
	must := func(r result) {
		t.Helper()
		if r.status != 0 {
			t.Fatalf("exit status %d: %s", r.status, r.out)
		}
	}
	writeFile(t, file, []byte("new"))
	word := "SITE LOCK AS a-word-of-its-own"
	must(curl("", "-Q", word, "-Q", "MKD phone_lock"))
	if r := curl("phone.tsv", "-v", "-T", file); r.status == 0 || !strings.Contains(r.out, ": say SITE LOCK AS with the") {
		t.Errorf("without the word: %d %s", r.status, r.out)
	}
	must(curl("phone.tsv", "-Q", word, "-T", file))
	must(curl("", "-Q", word, "-Q", "RMD phone_lock"))
	if r := curl("phone.tsv", "-Q", word, "-T", file); r.status == 0 {
		t.Error("it writes without the lock")
	}
}
