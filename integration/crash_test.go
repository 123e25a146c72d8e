package integration

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// Two clients replace each file again and again. The server is killed while it publishes: each file is whole, and is the last one
// that its uploader knows to be published, or the one after it.
func TestAKilledServerLeavesWholeFiles(t *testing.T) {
	t.Parallel()
	const names, uploaders = 3, 6
	s := startServer(t, "[files]\ndurable = false\n"+defaults)
	for round := range count(3, 60) {
		var acknowledged [uploaders]int
		var all sync.WaitGroup
		kill := make(chan struct{}, 1)
		for i := range uploaders {
			c := s.session(account)
			c.Want(200, "TYPE I")
			all.Go(func() {
				for n := 1; ; n++ {
					if c.Store(fmt.Sprint("/f", i%names), bytes.Repeat(fmt.Appendf(nil, "%d %d\n", i, n), wholeLines)) != nil {
						return
					}
					if acknowledged[i] = n; n == 5+round%5 {
						select {
						case kill <- struct{}{}:
						default:
						}
					}
				}
			})
		}
		<-kill
		s.kill()
		all.Wait()
		left := len(s.unfinished())
		for name := range names {
			content := s.read(fmt.Sprint("f", name))
			var i, n int
			if _, err := fmt.Sscan(content, &i, &n); err != nil || !whole([]byte(content)) || i%names != name || n < acknowledged[i] || n > acknowledged[i]+1 {
				t.Errorf("/f%d has %d bytes of upload %d of client %d, which has replies for %d: %v", name, len(content), n, i, acknowledged[i], err)
			}
		}
		s.start()
		harness.Await(t, "what is left is swept", func() bool { return len(s.unfinished()) == 0 })
		t.Logf("%d temporary files were left", left)
	}
}
