package server

import (
	"context"
	"errors"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

const (
	// drainTime is the time for transfers to finish when a server stops.
	drainTime = 20 * time.Second
	// handOverTime is the time for transfers to finish when a server hands over.
	handOverTime = 300 * time.Millisecond
	// leaveTime is the time limit of a stop after the transfers.
	leaveTime = 10 * time.Second
	// leaveHungTime is that limit when the files hang, so that a command that hangs, too, does not delay the next server.
	leaveHungTime = time.Second
	// outputWithin is the time limit for the reader of standard error.
	outputWithin = 2 * time.Second
)

// ending describes how a server stops.
type ending struct {
	text   string        // of the 421 to clients
	drain  time.Duration // the time for transfers to finish
	resign bool          // let another server take over as soon as this one can change nothing
	leave  time.Duration // the time limit after the transfers
}

var (
	endOrderly  = ending{"the server stops", drainTime, true, leaveTime}
	endHandOver = ending{"another server takes over: connect again", handOverTime, true, leaveTime}
	endHung     = ending{"another server takes over: connect again", handOverTime, true, leaveHungTime}
	endDeposed  = ending{"another server takes over: connect again", 0, false, leaveTime}
)

// stopAfter stops the server after an error.
func (s *server) stopAfter(err error) error {
	switch {
	case errors.Is(err, journal.ErrFailed): // no later change can be recorded
		return err
	case errors.Is(err, etcd.ErrDeposed):
		s.election.setState(deposed, err.Error())
		return errors.Join(err, s.leave(endDeposed))
	case errors.Is(err, errFiles):
		s.election.setState(deposed, err.Error())
		return errors.Join(err, s.leave(endHung))
	case errors.Is(err, etcd.ErrHandOver):
		s.election.setState(deposed, err.Error())
		return errors.Join(err, s.leave(endHandOver))
	}
	return errors.Join(err, s.leave(endOrderly))
}

// stop stops the parts in one order: new connections; sessions, after their transfers or a time limit; reaper, control socket and page; the tree and
// the log; the sinks of events. So no client can change a file or a lock when another server takes over. It may be called at any point of the start.
func (s *server) stop(how ending) error {
	var errs []error
	if s.election != nil {
		s.election.stop()
	}
	v := s.service.Load()
	if v != nil || s.election != nil {
		s.log.Info("stopping")
		s.background.Go(func() { _ = s.notifyManager(daemon.SdNotifyStopping) })
	}
	if v != nil {
		errs = append(errs, v.dismiss(how))
	}
	s.cancel()
	errs = append(errs, s.admin.close())
	if s.sinks != nil {
		s.sinks.stop()
	}
	s.background.Wait()
	if v != nil {
		errs = append(errs, v.close(how.resign && errors.Join(errs...) == nil))
	}
	if s.election != nil {
		errs = append(errs, s.election.cluster.Close())
	}
	if s.reservedDir != nil {
		errs = append(errs, s.reservedDir.Close())
	}
	if s.sinks != nil {
		errs = append(errs, s.sinks.close())
	}
	return errors.Join(errs...)
}

// leave calls stop with a time limit: a part that hangs, such as a file system, ends only with the process. Then a server of several has
// not resigned, and another one takes over at the end of its lease.
func (s *server) leave(how ending) error {
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop(how) }()
	select {
	case err := <-stopped:
		return err
	case <-time.After(how.drain + how.leave):
		return errors.New("a part of the server did not stop in time")
	}
}

// dismiss ends the sessions, after their transfers or a time limit.
func (v *service) dismiss(how ending) error {
	reply := control.Reply{Code: 421, Text: how.text}
	err := v.conns.Shutdown(reply)
	ctx, cancel := context.WithTimeout(context.Background(), how.drain)
	defer cancel()
	if v.conns.Wait(ctx) == nil {
		return err
	}
	for conn := range v.conns.Conns() {
		conn.Kick(reply)
	}
	ctx, cancel = context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	return errors.Join(err, v.conns.Wait(ctx))
}

// close closes the open parts of the service. No session and no other goroutine may use them. It closes
// the log last: no other server may take over while this one can change the tree.
func (v *service) close(resign bool) error {
	errs := []error{closePorts(v.ports)}
	if v.driver != nil {
		v.driver.Close()
	}
	if v.jobs != nil {
		v.jobs.Close()
	}
	if v.tree != nil {
		errs = append(errs, v.closeTree())
	}
	if v.lockedRoot != nil {
		errs = append(errs, v.lockedRoot.Close())
	}
	if v.stopLog != nil {
		v.stopLog()
		<-v.logDone
	}
	if v.term != nil && resign {
		v.resign()
	}
	if v.log != nil {
		errs = append(errs, v.log.Close())
	}
	return errors.Join(errs...)
}

// closeTree closes the tree. If the file system hangs, a server of several continues after leaveHungTime/4: what is left to do is to remove the mark of
// this start, and a late removal is harmless.
func (v *service) closeTree() error {
	if v.term == nil {
		return v.tree.Close()
	}
	closed := make(chan error, 1)
	go func() { closed <- v.tree.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(leaveHungTime / 4):
		return errors.New("the file system of root or etcd.shared_state does not answer")
	}
}

// resign lets another server take over at once.
func (v *service) resign() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime/2)
	defer cancel()
	if err := v.term.Resign(ctx); err != nil {
		v.server.log.Warn("another server takes over when the lease of this one ends", "err", err)
	}
}
