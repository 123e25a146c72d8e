package server

import (
	"context"
	"errors"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ftplockd/ftplockd/internal/control"
)

const (
	// drainTime is how long a server that stops lets transfers finish.
	drainTime = 20 * time.Second
	// handOverTime is the same for one that was asked to hand over.
	handOverTime = 300 * time.Millisecond
	// leaveTime is how long a server may take to end when its transfers are over.
	leaveTime = 10 * time.Second
	// outputWithin is how long the end of the process waits for the reader of its standard error.
	outputWithin = 2 * time.Second
)

// ending is how a server ends.
type ending struct {
	text   string        // what clients are told
	drain  time.Duration // how long transfers may go on
	resign bool          // another server may take over as soon as nothing of this one can change anything
}

func orderly() ending { return ending{"the server stops", drainTime, true} }

func handedOver() ending {
	return ending{"another server takes over: connect again", handOverTime, true}
}

func deposed() ending { return ending{"another server takes over: connect again", 0, false} }

// stop ends the server in one order: no new connections; sessions, those with a transfer when that is over or
// after a time; reaper, control socket and page; the tree and the log; the sinks of events. So no client can change a file or a
// lock when another server takes over. It may be called at any point of the start.
func (s *server) stop(how ending) error {
	var errs []error
	if s.election != nil {
		s.election.end()
	}
	v := s.service.Load()
	if v != nil || s.election != nil {
		s.log.Info("stopping")
		go s.tellManager(daemon.SdNotifyStopping) // which may not read
	}
	if v != nil {
		errs = append(errs, v.dismiss(how))
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
		errs = append(errs, v.close(how.resign && errors.Join(errs...) == nil))
	}
	if s.election != nil {
		errs = append(errs, s.election.close())
	}
	if s.claim != nil {
		errs = append(errs, s.claim.Close())
	}
	if s.watched != nil {
		errs = append(errs, s.watched.close())
	}
	return errors.Join(errs...)
}

// leave is stop, but what hangs, such as a mount, is left to the end of the process. A server of several has not resigned then, so
// the other one takes over when its lease has ended.
func (s *server) leave(how ending) error {
	stopped := make(chan error, 1)
	go func() { stopped <- s.stop(how) }()
	select {
	case err := <-stopped:
		return err
	case <-time.After(how.drain + leaveTime):
		return errors.New("something did not end in time")
	}
}

// dismiss ends the sessions: those with a transfer when that is over, or when it has taken too long.
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

// close closes the parts of the service that are open. No session may be left, and no goroutine may run in the background. It closes
// the log last: no other server may take over while the tree is open.
func (v *service) close(resign bool) error {
	errs := []error{closePorts(v.ports)}
	if v.driver != nil {
		v.driver.Close()
	}
	if v.hostdir != nil {
		v.hostdir.Close()
	}
	if v.tree != nil {
		errs = append(errs, v.tree.Close())
	}
	if v.end != nil {
		v.end()
		<-v.over
	}
	if v.term != nil && resign {
		v.resign()
	}
	if v.term != nil {
		errs = append(errs, v.term.Close())
	} else if v.log != nil {
		errs = append(errs, v.log.Close())
	}
	return errors.Join(errs...)
}

// resign lets another server take over at once.
func (v *service) resign() {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime/2)
	defer cancel()
	if err := v.term.Resign(ctx); err != nil {
		v.server.log.Warn("another server takes over when the lease of this one is over", "err", err)
	}
}
