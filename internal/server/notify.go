package server

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// tellManager tells the service manager how the server stands (sd_notify(3)). Without one it does nothing.
func (s *server) tellManager(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("the service manager was not told", "err", err)
	}
}

// watchdog tells the service manager that the process is alive, as often as it wants to hear that, until ctx ends. It says
// nothing of whether locks can be granted: that is /readyz.
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
