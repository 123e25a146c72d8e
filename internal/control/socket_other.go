//go:build !linux

package control

import (
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Other systems do not report what Linux does: here only reading notices a client that hangs up, a reply that was written counts
// as received, and a second connection to a passive port waits unseen.

func tune(t *net.TCPConn, userTimeout time.Duration) { keepAlive(t, userTimeout) }

func (w *wire) hungUp() bool { return false }

func (w *wire) received() uint64 { return 0 }

func (w *wire) peer() peer { return peer{} }

func dismissNext(*net.TCPListener) (from netip.Addr, ok bool) { return from, false }

func drain(syscall.RawConn) {}
