package server

import (
	"errors"
	"fmt"
	"io"

	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// checkUnused returns an error if another server uses the state directory or the root. It writes nothing.
func (s *server) checkUnused() error {
	if err := journal.InUse(s.config.State); err != nil {
		return err
	}
	root, err := s.lockRoot()
	if root != nil {
		err = root.Close()
	}
	if errors.Is(err, journal.ErrInUse) {
		return err
	}
	return nil // keepRoot reports other errors
}

// keepRoot locks the root until the service closes. A root that cannot be locked is logged.
func (v *service) keepRoot() (err error) {
	if v.lockedRoot, err = v.server.lockRoot(); err == nil || errors.Is(err, journal.ErrInUse) {
		return err
	}
	v.server.log.Warn("the root cannot be locked: never serve it with a second server", "root", v.server.config.Root, "err", err)
	return nil
}

// lockRoot locks the root until the result is closed: a second server on it, with a state directory of its own, would remove the directories
// of this server's locks, and grant the locks again. With [etcd] it returns nil: the servers share the root and the locks.
func (s *server) lockRoot() (io.Closer, error) {
	if s.config.Etcd.On() {
		return nil, nil
	}
	locked, err := journal.LockDir(s.config.Root)
	if errors.Is(err, journal.ErrInUse) {
		err = fmt.Errorf("root %s is %w: another ftplockd serves this directory, or a program holds its flock: stop that, or give this server another root", s.config.Root, err)
	}
	return locked, err
}
