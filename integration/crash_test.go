package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// fate is what a client knows of one of its locks.
type fate struct {
	token    uint64    // of the last acknowledged grant; 0: never
	held     bool      // acknowledged, and no release was sent since
	unknown  bool      // the reply to the last command was lost
	acquired time.Time // between sending MKD and its reply
	answered time.Time
}

// churner is a client that takes and gives back locks of its own, at random, until its server dies.
type churner struct {
	id    int
	locks map[string]*fate
	after int        // so many replies arrived
	err   error      // what it was told that cannot be
	rand  *rand.Rand // reproducible
}

func (c *churner) run(address string, replies chan<- struct{}) {
	s, err := login(address, account)
	if err != nil {
		c.err = err
		return
	}
	defer s.conn.Close()
	for {
		name := fmt.Sprintf("/locks/churn-%d-%d", c.id, c.rand.IntN(6))
		f := c.locks[name]
		if f == nil {
			f = &fate{}
			c.locks[name] = f
		}
		if !c.step(s, name, f) {
			return
		}
		c.after++
		select {
		case replies <- struct{}{}:
		default:
		}
	}
}

// step does one command and reports whether there was a reply.
func (c *churner) step(s *session, name string, f *fate) bool {
	line, code := "MKD "+name, 257
	if f.held {
		line, code = "RMD "+name, 250
	}
	sent := time.Now()
	r, err := s.try(line)
	if err != nil {
		f.unknown = true
		return false
	}
	if r.code == 421 {
		f.unknown = true
		return false
	}
	if r.code != code {
		c.err = fmt.Errorf("%s: %v", line, r)
		return false
	}
	f.held = !f.held
	if f.held {
		f.token, f.acquired, f.answered = token(r), sent, time.Now()
	}
	return true
}

func TestAcknowledgedLocksSurviveAKilledServer(t *testing.T) {
	t.Parallel()
	for _, directories := range []bool{true, false} {
		t.Run(fmt.Sprintf("directories=%v", directories), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, fmt.Sprintf("[locks]\ndirectories = %v\ndurable = true\n[files]\ndurable = false\n", directories)+defaults)
			s.write("dir/.ftplockd-abc", "a user's own file")
			seen := uint64(0)
			for round := range count(3, 50) {
				seen = crashRound(t, s, round, seen)
			}
			if got := s.read("dir/.ftplockd-abc"); got != "a user's own file" {
				t.Errorf("the user's own file is %q", got)
			}
		})
	}
}

// crashRound has eight clients churn, kills the server among them, starts it again and compares. It returns the
// highest token that any client saw so far.
func crashRound(t *testing.T, s *server, round int, seen uint64) uint64 {
	t.Helper()
	steady := s.session("other")
	name := fmt.Sprintf("/locks/steady-%d", round)
	steady.want(257, "MKD "+name)
	before := []string{steady.want(213, "MDTM "+name).text, holderLine(steady.want(211, "SITE LOCK INFO "+name))}
	upload := s.session(account)
	upload.want(200, "TYPE I")
	data, err := upload.open("STOR /dir/unfinished")
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	if _, err := data.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	await(t, "the upload begins", func() bool { return len(s.unfinished()) == 2 })

	churners := churn(s, round)
	s.start()

	c := s.session(account)
	if got := []string{c.want(213, "MDTM "+name).text, holderLine(c.want(211, "SITE LOCK INFO "+name))}; strings.Join(got, "\n") != strings.Join(before, "\n") {
		t.Errorf("the lock was %q, after the crash it is %q", before, got)
	}
	await(t, "the dead upload is swept", func() bool { return len(s.unfinished()) == 1 })
	if s.exists("dir/unfinished") {
		t.Error("the dead upload was published")
	}
	seen = max(seen, compare(t, c, churners))
	newToken := token(c.want(257, fmt.Sprintf("MKD /locks/after-%d", round)))
	if newToken <= seen {
		t.Errorf("token %d after the crash, %d was seen before", newToken, seen)
	}
	return newToken
}

// churn has eight clients go on until the server is killed after some hundred replies.
func churn(s *server, round int) []*churner {
	churners := make([]*churner, 8)
	replies := make(chan struct{})
	var running sync.WaitGroup
	for i := range churners {
		churners[i] = &churner{id: i + 10*round, locks: make(map[string]*fate), rand: rand.New(rand.NewPCG(uint64(i), uint64(round)))}
		running.Go(func() { churners[i].run(s.v4, replies) })
	}
	timeout := time.After(patience)
	for range 200 + 37*round {
		select {
		case <-replies:
		case <-timeout:
			s.t.Error("the clients make no progress")
		}
	}
	s.kill()
	running.Wait()
	return churners
}

// compare checks what clients know of their locks against a server that was started again, gives all back
// and returns the highest token.
func compare(t *testing.T, c *session, churners []*churner) uint64 {
	t.Helper()
	held, free, highest := 0, 0, uint64(0)
	for _, client := range churners {
		if client.err != nil {
			t.Error(client.err)
		}
		for name, f := range client.locks {
			highest = max(highest, f.token)
			info := c.wantEither("SITE LOCK INFO " + name)
			switch {
			case f.unknown:
			case f.held:
				held++
				checkHeld(t, c, name, f, info)
			case info.code != 550:
				t.Errorf("%s was given back and is still held: %v", name, info)
			default:
				free++
			}
			if info.code == 211 {
				c.want(250, "RMD "+name)
			}
		}
	}
	if held == 0 || free == 0 {
		t.Errorf("%d held and %d free locks prove nothing", held, free)
	}
	return highest
}

func checkHeld(t *testing.T, c *session, name string, f *fate, info reply) {
	t.Helper()
	want := fmt.Sprintf("token %d\n", f.token)
	if info.code != 211 || !strings.Contains(info.text, want) || !strings.Contains(info.text, "held by "+account+"@127.0.0.1") {
		t.Errorf("%s: %v, want it held with %s", name, info, want)
		return
	}
	stamp, err := time.Parse("20060102150405", c.want(213, "MDTM "+name).text[:14])
	if err != nil || stamp.Before(f.acquired.Truncate(time.Second)) || stamp.After(f.answered) {
		t.Errorf("%s: MDTM %v, %v; acquired between %v and %v", name, stamp, err, f.acquired, f.answered)
	}
}

// holderLine is who holds a lock and with which token, without the ages.
func holderLine(info reply) string {
	_, holder, _ := strings.Cut(info.text, "held by ")
	holder, _, _ = strings.Cut(holder, " ")
	_, number, _ := strings.Cut(info.text, "token ")
	return holder + " " + strings.Fields(number)[0]
}

func TestLocksOfACrashedServerAreGivenBackWhereTheRuleSaysSo(t *testing.T) {
	t.Parallel()
	s := startServer(t, `
[[lock]]
match = "/released/**"
on_disconnect = "release"
max_age = "1h"
`+defaults)
	c := s.session(account)
	c.want(257, "MKD /released/a")
	c.want(257, "MKD /locks/a")
	s.kill()
	s.start()
	other := s.session("other")
	await(t, "the lock comes free", func() bool { return other.wantEither("MKD /released/a").code == 257 })
	other.want(550, "MKD /locks/a", "held by "+account)
	// The account's next session speaks for it.
	s.session(account).want(250, "RMD /locks/a")
}

func TestHeldLockGetsItsDirectoryBackAfterACrash(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	c := s.session(account)
	c.want(257, "MKD /locks/kept")
	s.kill()
	if err := os.Remove(s.path("locks/kept")); err != nil {
		t.Fatal(err)
	}
	s.start()
	if !s.exists("locks/kept") {
		t.Error("a held lock did not get its directory back")
	}
	s.session("other").want(550, "MKD /locks/kept", "held by "+account)
}
