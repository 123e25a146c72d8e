package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// What else was acknowledged before a crash TestHistoriesWithFaultsAreLinearizable looks at.
func TestAKilledServerKeepsLocksAndSweepsItsUploads(t *testing.T) {
	t.Parallel()
	for _, directories := range []bool{true, false} {
		t.Run(fmt.Sprintf("directories=%v", directories), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, fmt.Sprintf("[locks]\ndirectories = %v\n", directories)+defaults)
			s.write("dir/.ftplockd-abc", "a user's own file")
			seen := uint64(0)
			for round := range count(2, 20) {
				seen = crashRound(t, s, fmt.Sprint("/locks/", round), seen)
			}
			s.wantFile(t, "dir/.ftplockd-abc", "a user's own file")
		})
	}
}

// crashRound kills the server in the middle of an upload, starts it again and looks at a lock. It returns its token.
func crashRound(t *testing.T, s *server, name string, seen uint64) uint64 {
	t.Helper()
	steady := s.session("other")
	granted := harness.Token(steady.Want(257, "MKD "+name))
	if granted <= seen {
		t.Errorf("token %d, %d was given before the crash", granted, seen)
	}
	before := []string{steady.Want(213, "MDTM "+name).Text, holderLine(steady.Want(211, "SITE LOCK INFO "+name))}
	upload := s.session(account)
	data := upload.begin("STOR /dir/unfinished")
	defer data.Close()
	if _, err := data.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the upload begins", func() bool { return len(s.unfinished()) == 2 })
	s.kill()
	s.start()

	c := s.session(account)
	if got := []string{c.Want(213, "MDTM "+name).Text, holderLine(c.Want(211, "SITE LOCK INFO "+name))}; !slices.Equal(got, before) {
		t.Errorf("the lock was %q, after the crash it is %q", before, got)
	}
	harness.Await(t, "the dead upload is swept", func() bool { return len(s.unfinished()) == 1 })
	if s.exists("dir/unfinished") {
		t.Error("the dead upload was published")
	}
	return granted
}

// holderLine is who holds a lock and with which token, without the ages.
func holderLine(info harness.Reply) string {
	_, holder, _ := strings.Cut(info.Text, "held by ")
	holder, _, _ = strings.Cut(holder, " ")
	_, number, _ := strings.Cut(info.Text, "token ")
	return holder + " " + strings.Fields(number)[0]
}
