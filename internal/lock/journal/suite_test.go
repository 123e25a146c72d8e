package journal

import (
	"syscall"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

const errFull = syscall.ENOSPC

// suiteBench opens logs for the suite.
type suiteBench struct{ *scene }

func (b suiteBench) Open() (lock.Log, error) { return b.open() }
func (b suiteBench) Stop(log lock.Log) error { return log.(*Log).Close() }
func (b suiteBench) Kill(log lock.Log)       { b.crash(log.(*Log)) }
func (b suiteBench) Now() lock.Instant       { return b.clock.Now() }

func TestLogPassesTheSuite(t *testing.T) {
	locktest.TestLog(t, func(t *testing.T) locktest.LogBench {
		s := newScene(t)
		s.options = func(o *Options) { o.Size = 20_000 }
		return suiteBench{s}
	})
}
