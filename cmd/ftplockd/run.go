package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// runServe runs the server until ctx ends or SIGINT or SIGTERM comes. A second signal ends the process at once.
func runServe(ctx context.Context, options serveOptions, stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	s, err := newServer(ctx, options, stderr, openCluster)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, s.banner(isTerminal(stdout))); err != nil {
		return errors.Join(err, s.stop(orderly()))
	}
	s.tellManager(daemon.SdNotifyReady)
	return s.wait(ctx, stop, hangups)
}

// wait waits for what ends the server, and ends it. It reads the configuration again meanwhile when it is told so. It calls stopping when ctx has
// ended: from then on another signal ends the process.
func (s *server) wait(ctx context.Context, stopping func(), hangups <-chan os.Signal) error {
	for {
		select {
		case <-hangups:
			s.background.Go(func() { // it waits for the disk, of locks too: a mount may hang there
				if _, err := s.reload(context.WithoutCancel(ctx)); err != nil {
					s.watched.bus.Publish(event.Event{Kind: event.Reload, Reason: err.Error()})
				}
			})
		case err := <-s.failed:
			return s.end(err)
		case <-ctx.Done():
			stopping()
			return s.leave(orderly())
		}
	}
}

// end ends the server because of an error.
func (s *server) end(err error) error {
	switch {
	case errors.Is(err, journal.ErrFailed): // nothing that is done from now on can be promised
		return err
	case errors.Is(err, etcd.ErrDeposed):
		s.election.enter(steppedOut, err.Error())
		return errors.Join(err, s.leave(deposed()))
	case errors.Is(err, etcd.ErrStepDown):
		s.election.enter(steppedOut, err.Error())
		return errors.Join(err, s.leave(handedOver()))
	}
	return errors.Join(err, s.leave(orderly()))
}
