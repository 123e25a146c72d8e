package server

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAFailedStartClosesEverything lets the control socket fail, which a start opens after the log and the tree. The next start succeeds.
func TestAFailedStartClosesEverything(t *testing.T) {
	r := newRunning(t)
	r.configure("")
	if err := once(r); err != nil { // the runtime opens files at the first start
		t.Fatal(err)
	}
	before := openDescriptors(t)
	socket := filepath.Join(r.dir, "state", controlSocket)
	if err := os.MkdirAll(filepath.Join(socket, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if s, err := newServer(t.Context(), Options{ConfigFile: r.file}, r.log, openCluster); err == nil {
		t.Fatal("the server started", s.leave(endOrderly))
	}
	if after := openDescriptors(t); after > before {
		t.Errorf("%d open files and sockets, %d before the start", after, before)
	}
	if err := os.RemoveAll(socket); err != nil {
		t.Fatal(err)
	}
	if err := once(r); err != nil {
		t.Error(err)
	}
}

// once starts and stops the server.
func once(r *running) error {
	s, err := newServer(r.t.Context(), Options{ConfigFile: r.file}, r.log, openCluster)
	if err != nil {
		return err
	}
	return s.leave(endOrderly)
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
