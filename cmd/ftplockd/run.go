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
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// runServe runs the server until ctx ends or SIGINT or SIGTERM comes. A second signal ends the process at once.
func runServe(ctx context.Context, options serveOptions, stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	s, err := newServer(ctx, options, stderr)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, s.banner(isTerminal(stdout))); err != nil {
		return errors.Join(err, s.stop())
	}
	s.tellManager(daemon.SdNotifyReady)
	for {
		select {
		case <-hangups:
			if _, err := s.reload(context.WithoutCancel(ctx)); err != nil {
				s.watched.bus.Publish(event.Event{Kind: event.Reload, Reason: err.Error()})
			}
		case err := <-s.failed:
			if errors.Is(err, journal.ErrFailed) { // nothing that is done from now on can be promised
				return err
			}
			return errors.Join(err, s.stop())
		case <-ctx.Done():
			stop() // another signal ends the process
			return s.stop()
		}
	}
}
