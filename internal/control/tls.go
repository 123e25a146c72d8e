package control

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
)

// controlTLS returns the TLS configuration of one control connection. With Options.SessionReuse its session tickets are encrypted with
// a key of its own, so that they are good for its own data connections only.
func (s *Server) controlTLS(config *tls.Config) *tls.Config {
	if !s.opts.SessionReuse {
		return config
	}
	config = config.Clone()
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails
	config.SetSessionTicketKeys([][32]byte{key})
	return config
}

// ErrNotResumed is what the handshake says of a data connection that has to resume the session of its control connection, and does not.
var ErrNotResumed = errors.New("the data connection does not resume the session of the control connection")

// DataTLS puts TLS over a data connection. With Options.SessionReuse it must resume the session of the control connection, and
// gets the ticket for the next one: under TLS 1.3 clients use a ticket once. Otherwise no tickets are sent: an uploader
// (Net::FTP) that only writes would leave them unread, and closing a socket with something unread resets the connection, so
// that the end of its upload is lost.
func (c *Conn) DataTLS(data net.Conn) *tls.Conn {
	config := c.tls.Clone()
	if !c.server.opts.SessionReuse {
		config.SessionTicketsDisabled = true
		return tls.Server(data, config)
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if !state.DidResume {
			return ErrNotResumed
		}
		return nil
	}
	// Under TLS 1.3 the ticket is sent before VerifyConnection is asked: a connection that is refused would get what lets the next one in.
	config.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		if !state.DidResume {
			return nil, ErrNotResumed
		}
		return config.EncryptTicket(state, session)
	}
	return tls.Server(data, config)
}
