//go:build linux

package etcd

import (
	"testing"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestStorePassesTheSuite(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 3)
	locktest.TestStore(t, func(t *testing.T) lock.Store {
		s := sceneOn(t, etcd)
		return s.campaign(s.open(s.options())).Store
	})
}
