//go:build !linux

package control

import (
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Other systems lack these functions. There the server detects a hang-up only when it reads, treats a reply that was written as
// received, and detects no second connection to a passive port.

func tune(t *net.TCPConn, userTimeout time.Duration) { keepAlive(t, userTimeout) }

func (w *wire) hungUp() bool { return false }

func (w *wire) bytesArrived() uint64 { return 0 }

func BytesMoved(net.Conn) (n uint64, ok bool) { return 0, false }

func (w *wire) peer() peer { return peer{} }

func dismissNext(*net.TCPListener) (from netip.Addr, ok bool) { return from, false }

func drain(syscall.RawConn) {}
