//go:build !linux

package control

import (
	"net"
	"net/netip"
	"syscall"
	"time"
)

// What only Linux tells is not known here: a client that hangs up is noticed by reading alone, and a reply counts as heard
// unless the connection was reset; a second connection to a passive port waits unseen.

func tune(t *net.TCPConn, userTimeout time.Duration) { keepAlive(t, userTimeout) }

func (w *wire) hungUp() (gone, reset bool) { return false, false }

func (w *wire) received() uint64 { return 0 }

func (w *wire) unacked() bool { return false }

func dismissNext(*net.TCPListener) (from netip.Addr, ok bool) { return from, false }

func drain(syscall.RawConn) {}
