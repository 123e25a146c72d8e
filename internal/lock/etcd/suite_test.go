//go:build linux

package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestLogPassesTheSuite(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	locktest.TestLog(t, func(t *testing.T) locktest.LogBench {
		s := sceneOn(t, etcd)
		return &bench{s, s.open(s.options())}
	})
}

// bench is the locktest.LogBench of one prefix.
type bench struct {
	*scene
	c *Cluster
}

func (b *bench) Open() (lock.Log, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := b.c.Campaign(ctx)
	if err == nil {
		b.Cleanup(func() { l.Close() })
	}
	return l, err
}

func (b *bench) Stop(l lock.Log) error { return l.(*Log).Resign(context.Background()) }

func (b *bench) Kill(l lock.Log) {
	log := l.(*Log)
	log.Close()
	if err := b.c.revoke(context.Background(), log.lease); err != nil {
		b.Error(err)
	}
}

func (b *bench) Now() lock.Instant {
	b.clock.Advance(time.Millisecond)
	return b.clock.Now()
}
