//go:build linux

package cluster

import (
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

var (
	long        = flag.Duration("cluster.long", 0, "duration of the histories; 0: one of each")
	seedFlag    = flag.Uint64("cluster.seed", 0, "seed of the histories; 0: a random one")
	space       = flag.Duration("cluster.space", 0, "duration of the test of etcd's settings; 0: half a minute at a small scale")
	withFigures = flag.Int("cluster.figures", 0, "rounds of the measurements; 0: none")
)

const (
	account  = harness.Account
	password = harness.Password
	patience = harness.Patience
)

// dir has the built programs.
var dir string

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, "4", func(to string) error {
		dir = to
		return nil
	}))
}

// plainBinary is the released ftplockd. steppedBinary steps its clocks as a file prescribes.
var (
	plainBinary   = sync.OnceValues(func() (string, error) { return build("ftplockd") })
	steppedBinary = sync.OnceValues(func() (string, error) { return build("ftplockd-stepped", "-tags", "testclock") })
)

var sources = sync.OnceValue(func() error { return harness.Sources("../..") })

func build(name string, flags ...string) (string, error) {
	if err := sources(); err != nil {
		return "", err
	}
	to := filepath.Join(dir, name)
	return to, harness.Build("../../cmd/ftplockd", to, flags...)
}
