package driver

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ftplockd/ftplockd/control"
)

// ends are the addresses of a TCP socket.
type ends struct{ local, remote netip.AddrPort }

// clientEnds are those of the client's socket; false if the connection has none of this machine.
func clientEnds(c *control.Conn) (e ends, ok bool) {
	local, ok := plain(c.RemoteAddr())
	remote, also := plain(c.LocalAddr())
	return ends{local, remote}, ok && also && here(local)
}

func plain(a net.Addr) (netip.AddrPort, bool) {
	at, ok := addrPort(a)
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), ok
}

// addrPort takes the address of a socket without putting it into words.
func addrPort(a net.Addr) (netip.AddrPort, bool) {
	if client, ok := a.(control.Addr); ok {
		a = client.Addr
	}
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	return tcp.AddrPort(), true
}

// sockDiag asks the kernel about sockets of this machine (of its network namespace): sock_diag(7).
type sockDiag struct{ fd int }

func openSockDiag() (sockDiag, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	return sockDiag{fd}, err
}

func (d sockDiag) close() { unix.Close(d.fd) }

// The structures of linux/inet_diag.h, behind a nlmsghdr.
const (
	header     = unix.SizeofNlMsghdr
	request    = 56 // inet_diag_req_v2: family, protocol, 2 bytes, the states as bits, inet_diag_sockid
	answered   = 72 // inet_diag_msg
	inodeAt    = 68
	anyState   = 0xffffffff
	noCookie   = 0xff // in each of its 8 bytes
	socketID   = 8    // inet_diag_sockid in the request: ports, addresses, interface, cookie
	cookieAt   = socketID + 40
	addressLen = 16
)

// link returns what /proc calls a socket that some process holds.
func (d sockDiag) link(e ends) (string, error) {
	ask := make([]byte, header+request)
	binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
	binary.NativeEndian.PutUint16(ask[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST)
	body := ask[header:]
	body[0], body[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if e.local.Addr().Is4() { // also right for a socket of AF_INET6 that speaks IPv4
		body[0] = unix.AF_INET
	}
	binary.NativeEndian.PutUint32(body[4:], anyState)
	for i, end := range []netip.AddrPort{e.local, e.remote} {
		binary.BigEndian.PutUint16(body[socketID+2*i:], end.Port())
		copy(body[socketID+4+addressLen*i:], end.Addr().AsSlice())
	}
	for i := range 8 {
		body[cookieAt+i] = noCookie
	}
	if err := unix.Sendto(d.fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return "", err
	}
	var buffer [1024]byte
	n, _, err := unix.Recvfrom(d.fd, buffer[:], 0)
	if err != nil {
		return "", err
	}
	messages, err := syscall.ParseNetlinkMessage(buffer[:n])
	if err != nil || len(messages) == 0 || messages[0].Header.Type != unix.SOCK_DIAG_BY_FAMILY || len(messages[0].Data) < answered {
		return "", errors.Join(err, unix.ENOENT)
	}
	inode := binary.NativeEndian.Uint32(messages[0].Data[inodeAt:])
	if inode == 0 {
		return "", unix.ENOENT
	}
	return "socket:[" + strconv.FormatUint(uint64(inode), 10) + "]", nil
}
