package control

import (
	"net"
	"time"
)

// keepAlive makes TCP probe a silent peer so that it is given up after about d; 0: as the system does.
func keepAlive(t *net.TCPConn, d time.Duration) {
	if d <= 0 {
		return
	}
	const probes = 3
	interval := max(d/(probes+1), time.Second)
	_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: interval, Interval: interval, Count: probes})
}
