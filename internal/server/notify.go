package server

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifyWithin limits the time of a notification: the service manager may not read.
const notifyWithin = time.Second

// notifyManager sends a state to the service manager (sd_notify(3)), if there is one. It waits for notifyWithin at most, unlike daemon.SdNotify.
func (s *server) notifyManager(state string) error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_ = conn.SetWriteDeadline(time.Now().Add(notifyWithin))
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		s.log.Warn("could not notify the service manager", "state", state, "err", err)
	}
	return err
}

// notifyReady notifies the service manager that the start is complete, and then that the process is alive, at the interval that the manager sets,
// until ctx ends. Whether locks can be granted is reported by /readyz.
func (s *server) notifyReady(ctx context.Context) error {
	for s.notifyManager(daemon.SdNotifyReady) != nil { // without this notification systemd ends the service
		select {
		case <-time.After(notifyWithin):
		case <-ctx.Done():
			return nil
		}
	}
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return err
	}
	tick := time.NewTicker(every / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = s.notifyManager(daemon.SdNotifyWatchdog)
		case <-ctx.Done():
			return nil
		}
	}
}
