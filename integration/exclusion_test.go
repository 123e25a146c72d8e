package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestUploadersAndDownloadersNeverMeetOrSeeATornFile(t *testing.T) {
	t.Parallel()
	need(t, "perl", "python3")
	s := startServer(t, defaults)
	s.write("phone.tsv", strings.Repeat("first\n", wholeLines))
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	host, port := split(s.v4)
	rounds := count(3, 100)
	var all sync.WaitGroup
	for i := range 16 {
		role := []string{"up", "down"}[i%2]
		args := []string{host, port, account, password, fmt.Sprint("worker", i), role, strconv.Itoa(rounds), log}
		program := [][]string{
			append([]string{"perl", "testdata/clients/worker.pl"}, args...),
			append([]string{"python3", "testdata/clients/worker.py"}, args...),
			goChild(t, "worker", args...),
		}[i/2%3]
		all.Go(func() {
			if r := run(t, program[0], program[1:]...); r.status != 0 {
				t.Errorf("%s: exit status %d: %s", program[1], r.status, r.out)
			}
		})
	}
	stop, peeked := make(chan struct{}), make(chan error, 1)
	go func() { peeked <- peek(s.v4, stop) }()
	all.Wait()
	close(stop)
	if err := <-peeked; err != nil {
		t.Error("a reader without the lock:", err)
	}
	checkTurns(t, log, 16*rounds)
}

// peek downloads the file without the lock, again and again: it may be missing for a moment, but never torn.
func peek(address string, stop <-chan struct{}) error {
	s, err := login(address, "other")
	if err != nil {
		return err
	}
	defer s.conn.Close()
	if _, err := s.try("TYPE I"); err != nil {
		return err
	}
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		text, err := s.retrieve("RETR phone.tsv")
		var no *refused
		switch {
		case errors.As(err, &no) && no.reply.code == 550:
		case err != nil:
			return err
		case !whole(text):
			return fmt.Errorf("torn: %d bytes, %.40q", len(text), text)
		}
	}
}

// checkTurns reads the log of the holders: each stops before the next one starts.
func checkTurns(t *testing.T, file string, turns int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 2*turns {
		t.Errorf("%d lines in the log, want %d", len(lines), 2*turns)
	}
	for i := 0; i+1 < len(lines); i += 2 {
		id, ok := strings.CutPrefix(lines[i], "start ")
		if !ok || lines[i+1] != "stop "+id {
			t.Fatalf("two holders: %q, %q", lines[i], lines[i+1])
		}
	}
}

// counter starts counter.py, which says each of its steps.
func (s *server) counter(t testing.TB, times int) *program {
	t.Helper()
	host, port := split(s.v4)
	return launch(t, command(t, "python3", "testdata/clients/counter.py", host, port, account, password, strconv.Itoa(times)))
}

// tally is what clients were told of the counter.
type tally struct {
	mu     sync.Mutex
	stored map[int]bool // values whose upload was acknowledged
	lost   []int        // values that two clients stored
}

// follow reads what a counter says up to a step that begins with the word, or its end.
func (c *tally) follow(p *program, word string) {
	for {
		line := p.line()
		var value int
		if _, err := fmt.Sscanf(line, "stored %d", &value); err == nil {
			c.mu.Lock()
			if c.stored[value] {
				c.lost = append(c.lost, value)
			}
			c.stored[value] = true
			c.mu.Unlock()
		}
		if line == "" || word != "" && strings.HasPrefix(line, word) {
			return
		}
	}
}

func TestNoUpdateUnderTheLockIsLostAmongKilledClients(t *testing.T) {
	t.Parallel()
	need(t, "python3")
	s := startServer(t, "[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1h\"\non_disconnect = \"release\"\n")
	s.write("counter", "0")
	c := &tally{stored: make(map[int]bool)}
	var all sync.WaitGroup
	steady, times := 3, count(10, 300)
	for range steady {
		p := s.counter(t, times)
		all.Go(func() {
			c.follow(p, "")
			<-p.exited
			if status := p.cmd.ProcessState.ExitCode(); status != 0 {
				t.Errorf("a client that was not killed: exit status %d", status)
			}
		})
	}
	victims := 0
	for range count(2, 20) {
		for _, step := range []string{"locked", "read", "opened", "sent", "stored"} {
			p := s.counter(t, 1)
			c.follow(p, step)
			p.kill()
			victims++
		}
	}
	all.Wait()
	last, err := strconv.Atoi(strings.TrimSpace(s.read("counter")))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.lost) > 0 {
		t.Errorf("stored twice, so an update was lost: %v", c.lost)
	}
	if acknowledged := len(c.stored); acknowledged < steady*times || last < acknowledged || last > acknowledged+victims {
		t.Errorf("the counter is %d after %d acknowledged updates, and %d clients killed", last, acknowledged, victims)
	}
}
