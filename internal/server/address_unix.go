//go:build unix

package server

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// errBound ends checkAddress before the socket listens.
var errBound = errors.New("the address is free")

// checkAddress returns an error if a TCP address cannot be opened. It binds the address and does not listen, so no client can connect.
func checkAddress(address string) error {
	config := net.ListenConfig{Control: func(network, address string, raw syscall.RawConn) error {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		if host == "" {
			host = map[bool]string{true: "0.0.0.0", false: "::"}[network == "tcp4"]
		}
		at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
		if err != nil || at.Addr().Zone() != "" {
			return errBound // it is checked at the take-over
		}
		var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
		if network == "tcp4" {
			to = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().Unmap().As4()}
		}
		if cerr := raw.Control(func(fd uintptr) { err = unix.Bind(int(fd), to) }); cerr != nil {
			return cerr
		}
		if err != nil {
			return os.NewSyscallError("bind", err)
		}
		return errBound
	}}
	_, err := config.Listen(context.Background(), "tcp", address) // never nil: Control returns an error
	if errors.Is(err, errBound) {
		return nil
	}
	return err
}
