package server

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// tellManager sends a state to the service manager (sd_notify(3)), if there is one.
func (s *server) tellManager(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("could not notify the service manager", "err", err)
	}
}

// watchdog notifies the service manager that the process is alive, at the interval that the manager sets, until ctx ends. Whether locks can be
// granted is reported by /readyz.
func (s *server) watchdog(ctx context.Context) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return err
	}
	tick := time.NewTicker(every / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.tellManager(daemon.SdNotifyWatchdog)
		case <-ctx.Done():
			return nil
		}
	}
}
