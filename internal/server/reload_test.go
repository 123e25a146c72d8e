package server

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestAStopDoesNotWaitForAReload reloads from a named pipe without a writer.
func TestAStopDoesNotWaitForAReload(t *testing.T) {
	r := newRunning(t)
	r.configure("")
	s, err := newServer(t.Context(), Options{ConfigFile: r.file}, r.log, openCluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(r.file); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfifo", r.file).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hangups, ended := make(chan os.Signal, 1), make(chan error, 1)
	hangups <- syscall.SIGHUP
	stopping := make(chan struct{})
	go func() { ended <- s.wait(ctx, func() { close(stopping) }, hangups) }()
	writer, err := os.OpenFile(r.file, os.O_WRONLY, 0) // the reload reads
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-stopping
	writer.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
