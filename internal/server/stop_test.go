package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAStopWithoutTheControlSocket removes the socket first. An error would keep the server from resigning.
func TestAStopWithoutTheControlSocket(t *testing.T) {
	r := newRunning(t)
	r.configure("")
	s, err := newServer(t.Context(), Options{ConfigFile: r.file}, r.log, openCluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(r.dir, "state", controlSocket)); err != nil {
		t.Fatal(err)
	}
	if err := s.leave(endOrderly); err != nil {
		t.Error(err)
	}
}

// failingLog is a log whose Run fails.
type failingLog struct{ lockLog }

func (failingLog) Run(context.Context) error { return errors.New("failed") }
func (failingLog) Close() error              { return nil }

// TestAStopAfterManyFailures lets the log fail when more parts have failed than the server has room for.
func TestAStopAfterManyFailures(t *testing.T) {
	s := &server{failed: make(chan error)}
	s.context, s.cancel = context.WithCancel(t.Context())
	v := &service{server: s, log: failingLog{}}
	v.runLog(t.Context())
	s.cancel()
	closed := make(chan error)
	go func() { closed <- v.close(false) }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the service does not close")
	}
}
