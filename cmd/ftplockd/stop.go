package main

import (
	"context"
	"errors"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ftplockd/ftplockd/internal/control"
)

// drainTime is how long a server that stops lets transfers finish.
const drainTime = 20 * time.Second

// stop ends the server in one order: no new connections; sessions, those with a transfer when that is over or
// after drainTime; reaper, control socket and page; the store and the tree; what is told of events. It may be called at any point
// of the start.
func (s *server) stop() error {
	var errs []error
	v := s.service.Load()
	if v != nil {
		s.log.Info("stopping")
		s.tellManager(daemon.SdNotifyStopping)
		errs = append(errs, v.conns.Shutdown(control.Reply{Code: 421, Text: "the server stops"}), v.drain())
	}
	s.cancel()
	if s.admin != nil {
		errs = append(errs, s.admin.close())
	}
	if s.watched != nil {
		s.watched.stop()
	}
	s.background.Wait()
	if v != nil {
		errs = append(errs, v.close())
	}
	if s.watched != nil {
		errs = append(errs, s.watched.close())
	}
	return errors.Join(errs...)
}

// drain waits until the sessions are over, and ends those that take too long.
func (v *service) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := v.conns.Wait(ctx); err == nil {
		return nil
	}
	for conn := range v.conns.Conns() {
		conn.Kick(control.Reply{Code: 421, Text: "the server stops"})
	}
	ctx, cancel = context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	return v.conns.Wait(ctx)
}

// close closes what is open, when no session is left and nothing runs in the background.
func (v *service) close() error {
	errs := []error{closePorts(v.ports)}
	if v.driver != nil {
		v.driver.Close()
	}
	if v.insides != nil {
		errs = append(errs, v.insides.Close())
	}
	if v.hostdir != nil {
		v.hostdir.Close()
	}
	if v.store != nil {
		errs = append(errs, v.store.Close())
	}
	if v.tree != nil {
		errs = append(errs, v.tree.Close())
	}
	return errors.Join(errs...)
}
