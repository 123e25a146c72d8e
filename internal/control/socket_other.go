//go:build !linux

package control

import (
	"net"
	"syscall"
	"time"
)

func tune(t *net.TCPConn, userTimeout time.Duration) {
	_ = t.SetNoDelay(true)
	if userTimeout > 0 {
		_ = t.SetKeepAliveConfig(keepAlive(userTimeout))
	}
}

func pollHangUp(uintptr, hang) bool { return false }

func outQueue(uintptr) int { return 0 }

func bytesReceived(uintptr) (uint64, bool) { return 0, false }

func drain(syscall.RawConn) {}
