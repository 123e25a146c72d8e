//go:build unix

package server

import (
	"errors"
	"os"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// TestASecondServerOnOneRoot starts servers with state directories of their own. With etcd, servers share a root. The root is free after the
// end of its server.
func TestASecondServerOnOneRoot(t *testing.T) {
	r := newRunning(t)
	r.configure("")
	first, err := newServer(t.Context(), Options{ConfigFile: r.file}, r.log, openCluster)
	if err != nil {
		t.Fatal(err)
	}
	config := *first.config
	config.State += "2"
	other := &server{config: &config, log: first.log}
	v := &service{server: other}
	for _, err := range []error{other.checkUnused(), v.keepRoot()} {
		if !errors.Is(err, journal.ErrInUse) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := os.Stat(config.State); err == nil {
		t.Error("the second server has made its state directory")
	}
	config.Etcd.Endpoints = []string{"http://127.0.0.1:1"}
	if err := other.checkUnused(); err != nil {
		t.Errorf("with etcd: %v", err)
	}
	config.Etcd.Endpoints = nil
	if err := first.leave(endOrderly); err != nil {
		t.Error(err)
	}
	if err := other.checkUnused(); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
