package control

import (
	"net"
	"time"
)

// keepAlive makes TCP probe a silent peer so that it is given up after about d.
func keepAlive(d time.Duration) net.KeepAliveConfig {
	const probes = 3
	interval := max(d/(probes+1), time.Second)
	return net.KeepAliveConfig{Enable: true, Idle: interval, Interval: interval, Count: probes}
}
