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
	notes, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if times, wrong := turns(string(notes)); times != 16*rounds || len(wrong) > 0 {
		t.Errorf("the lock was had %d times, want %d; wrong: %q", times, 16*rounds, wrong)
	}
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
