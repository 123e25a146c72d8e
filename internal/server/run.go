package server

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
)

// heapFloor is the size of a part of the heap that is never touched, so it takes no memory. The collector runs when the heap has doubled: without
// this part it would run a hundred times a second under load, because ftpserverlib allocates 4 KB for each reply.
const heapFloor = 16 << 20

// Run runs the server until ctx ends or the process gets SIGINT or SIGTERM. A second signal ends the process at once, and so does a stop
// that exceeds the time limits of all its parts. The caller must catch SIGPIPE: a server ends neither when the reader of its log ends nor when that of
// its standard output does.
func Run(ctx context.Context, options Options, stdout, stderr io.Writer) error {
	floor := make([]byte, heapFloor)
	defer runtime.KeepAlive(floor)
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	returned := make(chan struct{})
	defer close(returned)
	context.AfterFunc(ctx, func() {
		stop()
		select {
		case <-returned:
		case <-time.After(drainTime + leaveTime + 2*outputWithin):
			os.Exit(1)
		}
	})

	log := newUnblocked(stderr, func(lines int) {
		slog.New(options.LogFormat.handler(stderr, slog.LevelWarn)).Warn("lines of the log were lost: standard error was not read", "lines", lines)
	})
	defer log.close(outputWithin)
	s, err := newServer(ctx, options, log, openCluster)
	if err != nil || s == nil {
		return err
	}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		if _, err := io.WriteString(stdout, s.banner(isTerminal(stdout))); err != nil {
			s.log.Warn("cannot write to standard output", "err", err)
		}
	}()
	select { // nobody may read it
	case <-shown:
	case <-time.After(outputWithin):
	case <-ctx.Done():
	}
	s.run("notifying the service manager", s.notifyReady)
	return s.wait(ctx, stop, hangups)
}

// wait waits until ctx ends or a part of the server fails, and stops the server. SIGHUP reloads the configuration. It calls stopping when ctx has
// ended: from then on another signal ends the process.
func (s *server) wait(ctx context.Context, stopping func(), hangups <-chan os.Signal) error {
	for {
		select {
		case <-hangups:
			s.background.Go(func() { // the file system may hang
				if _, err := s.reload(context.WithoutCancel(ctx)); err != nil {
					s.sinks.bus.Publish(event.Event{Kind: event.Reload, Reason: err.Error()})
				}
			})
		case err := <-s.failed:
			return s.stopAfter(err)
		case <-ctx.Done():
			stopping()
			return s.leave(endOrderly)
		}
	}
}
