//go:build !unix

package server

import "net"

// checkAddress returns an error if a TCP address cannot be opened. A client that connects during the check is reset.
func checkAddress(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}
