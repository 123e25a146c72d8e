package integration

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var permFact = regexp.MustCompile(`perm=(\w*);[^\r\n]* (\S+)`)

// perms returns the perm facts in MLSD of a directory, by name, and checks that MLST returns the same.
func (s *session) perms(dir string) map[string]string {
	s.T.Helper()
	listing, err := s.Retrieve("MLSD " + dir)
	if err != nil {
		s.T.Fatal(err)
	}
	found := make(map[string]string)
	for _, m := range permFact.FindAllStringSubmatch(string(listing), -1) {
		found[m[2]] = m[1]
		if strings.Contains(m[0], "tonothing") { // MLST follows links
			continue
		}
		one := s.Want(250, "MLST "+strings.TrimSuffix(dir, "/")+"/"+m[2])
		if !strings.Contains(one.Text, "perm="+m[1]+";") {
			s.T.Errorf("MLST %s: %q, MLSD has perm=%s", m[2], one.Text, m[1])
		}
	}
	return found
}

// TestPermFactsPromiseWhatTheServerDoes compares perm facts (RFC 3659 section 7.5.5) with the replies to the commands.
func TestPermFactsPromiseWhatTheServerDoes(t *testing.T) {
	t.Parallel()
	for _, directories := range []string{"true", "false"} {
		t.Run("directories="+directories, func(t *testing.T) {
			s := startServer(t, "[locks]\ndirectories = "+directories+"\n[[lock]]\nmatch = '/locks/**'\n[[lock]]\nmatch = '/locks2/**'\nallow_cwd = false\n[[lock]]\nmatch = '/*_lock'\nprotects = ['/$1.tsv']\n")
			for _, file := range []string{"plain", "phone.tsv", "mine.tsv", "dir/file"} {
				s.write(file, "content")
			}
			if err := syscall.Mkfifo(s.path("pipe"), 0o644); err != nil {
				t.Fatal(err)
			}
			for link, to := range map[string]string{"tofile": "plain", "tonothing": "none"} {
				if err := os.Symlink(to, s.path(link)); err != nil {
					t.Fatal(err)
				}
			}
			c, other := s.session(account), s.session("other")
			other.Want(257, "MKD /locks/theirs")
			other.Want(257, "MKD /locks2/theirs")
			other.Want(257, "MKD /phone_lock")
			c.Want(257, "MKD /locks/mine")
			c.Want(257, "MKD /mine_lock")
			want := map[string]string{
				"plain": "adfwr", "phone.tsv": "r", "mine.tsv": "adfwr", "pipe": "df", ".locks.json": "r", "tofile": "adfwr", "tonothing": "adfw",
				"dir": "cdeflmp", "locks": "celmp", "locks2": "celmp", "phone_lock": "el", "mine_lock": "cdelmp",
			}
			got := c.perms("/")
			for name, perm := range want {
				if got[name] != perm {
					t.Errorf("%s: perm=%s, want %s", name, got[name], perm)
				}
			}
			for _, dir := range []string{"/locks", "/locks2"} {
				for name, perm := range c.perms(dir) {
					want := map[string]string{"/locks mine": "cdelmp", "/locks theirs": "el", "/locks2 theirs": "l"}[dir+" "+name]
					if perm != want {
						t.Errorf("%s/%s: perm=%s, want %s", dir, name, perm, want)
					}
				}
			}
			for _, refused := range []string{"RMD /locks/theirs", "RNFR /locks/theirs", "CWD /locks2/theirs", "DELE /phone.tsv", "RNFR /phone.tsv", "DELE /.locks.json", "RMD /locks", "RNFR /locks/mine"} {
				c.Want(550, refused)
			}
			for _, done := range []string{"DELE /pipe", "DELE /mine.tsv", "RMD /locks/mine", "CWD /locks/theirs", "DELE /tonothing"} {
				c.Want(250, done)
			}
		})
	}
}
