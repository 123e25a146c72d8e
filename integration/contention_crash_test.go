package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// staged is a rule whose lock publishes all files below /set with its RMD.
const staged = `
[[lock]]
match = "/set_lock"
max_age = "1h"
on_disconnect = "release"
protects = ["/set/*"]
commit = "release"
`

// setSize is how many files one RMD publishes.
const setSize = 40

// A server that is killed in the middle of the RMD that publishes many files has published all or none of them when it
// is started again, and all if the client had its 250.
func TestAServerKilledInAReleaseHasPublishedAllOrNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, staged)
	var names []string
	for i := range setSize {
		names = append(names, fmt.Sprintf("set/%02d", i))
		s.write(names[i], "0")
	}
	took := s.publish(t, names, "1")
	before, published, redone := "1", 0, 0
	rounds := count(10, 200)
	for round := range rounds {
		c, content := s.session(account), fmt.Sprint(round+2)
		c.stage(t, names, content)
		// The kills are spread over the time that it takes, or come while the record that decides is written, or when it is there.
		dead := make(chan struct{})
		go func() {
			defer close(dead)
			switch round % 3 {
			case 0:
				time.Sleep(took * time.Duration(round) / time.Duration(rounds))
			case 1:
				s.awaitRecord("committing-", took)
			case 2:
				s.awaitRecord("commit-", took)
			}
			s.kill()
		}()
		r, err := c.try("RMD /set_lock")
		acknowledged := err == nil && r.code == 250
		<-dead
		c.conn.Close()
		if mixed := s.contents(names); len(mixed) > 1 {
			redone++ // the kill came between two renames: the start has something to do
		}
		s.start()
		after := s.contents(names)
		switch {
		case len(after) != 1 || !after[before] && !after[content]:
			t.Fatalf("round %d: the files are %v; %q was there and %q was being published", round, after, before, content)
		case acknowledged && !after[content]:
			t.Fatalf("round %d: it was published, and is lost", round)
		case after[content]:
			before = content
			published++
		}
		await(t, "what is left over is swept", func() bool { return len(s.unfinished()) == 0 })
	}
	t.Logf("RMD takes %v; of %d kills %d left all files new, %d none; %d of them some until the next start",
		took.Round(time.Millisecond), rounds, published, rounds-published, redone)
	if *long && (published == 0 || published == rounds || redone == 0) {
		t.Errorf("of %d kills %d left the new files, %d some of them: one side is not proven", rounds, published, redone)
	}
}

// publish gives the files a content and returns how long the RMD took.
func (s *server) publish(t *testing.T, names []string, content string) time.Duration {
	t.Helper()
	c := s.session(account)
	c.stage(t, names, content)
	begun := time.Now()
	c.want(250, "RMD /set_lock")
	took := time.Since(begun)
	c.want(221, "QUIT")
	if got := s.contents(names); len(got) != 1 || !got[content] {
		t.Fatalf("published %v", got)
	}
	return took
}

// stage takes the lock and prepares the files.
func (s *session) stage(t *testing.T, names []string, content string) {
	t.Helper()
	await(t, "the lock comes free", func() bool { return s.wantEither("MKD /set_lock").code == 257 })
	s.want(200, "TYPE I")
	for _, name := range names {
		if err := s.store("/"+name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitRecord returns when the record of a publication is in the state directory under such a name, or when the time is long over.
func (s *server) awaitRecord(prefix string, took time.Duration) {
	for end := time.Now().Add(5 * took); time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
		records, err := filepath.Glob(filepath.Join(s.state, "*", prefix+"*"))
		if err != nil || len(records) > 0 {
			return
		}
	}
}

// contents are those that the files have, as the host sees them.
func (s *server) contents(names []string) map[string]bool {
	s.t.Helper()
	found := make(map[string]bool)
	for _, name := range names {
		found[strings.TrimSpace(s.read(name))] = true
	}
	return found
}
