package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/ftplockd/ftplockd/config"
)

// checkEvery is the interval at which a standby checks whether it could serve, and the active server whether it can serve its files.
const checkEvery = time.Second

// watchReadiness checks whether this server could serve, until it takes over or ctx ends. While it could not, it does not stand by.
func (e *election) watchReadiness(ctx context.Context) error {
	for e.state().name == standby || e.state().name == notReady {
		e.checkReadiness(ctx)
		select {
		case <-time.After(checkEvery):
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// checkReadiness checks once. It returns within readyWithin, even if a file system hangs.
func (e *election) checkReadiness(ctx context.Context) {
	err := e.await(ctx, e.readiness)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unready = err
}

// await waits for a check, as [readiness.await] does. Its error names the file systems that may hang.
func (e *election) await(ctx context.Context, check *readiness) error {
	err := check.await(ctx)
	if errors.Is(err, errNoAnswer) {
		c := e.server.logins.Load()
		return fmt.Errorf("the file system of root %s or etcd.shared_state %s does not answer", c.Root, c.Etcd.SharedState)
	}
	return err
}

// couldServe returns why this server could not serve; nil: the last check found no reason. It does not wait.
func (e *election) couldServe() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.unready
}

// checkServable returns why a standby could not serve: an address in use, a missing root or etcd.shared_state, a read-only etcd.shared_state, or
// a certificate that does not load. It changes only the time of a file: see checkFileSystem. It may wait for a file system.
func (s *server) checkServable() error {
	c := s.logins.Load()
	if err := s.checkAddresses(c); err != nil {
		return err
	}
	if c.TLS.Mode != config.TLSOff {
		if _, err := readPair(c.TLS.Certificate, c.TLS.Key); err != nil {
			return err
		}
	}
	if _, err := os.Stat(c.Root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("root: %w", err)
	}
	return checkFileSystem(c)
}

// checkAddresses returns an error if an address is in use. No client can connect during the check.
func (s *server) checkAddresses(c *config.Config) error {
	s.addresses.Lock()
	defer s.addresses.Unlock()
	for key, addresses := range map[string][]string{"listen": c.Listen, "tls.implicit_listen": c.TLS.ImplicitListen} {
		for _, address := range addresses {
			if err := checkAddress(address); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return nil
}
