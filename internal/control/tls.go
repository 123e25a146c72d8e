package control

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
)

// controlTLS returns the TLS configuration of a control connection. With Options.SessionReuse it encrypts session tickets with a key
// of its own, so that only its own data connections can use them.
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

// ErrNotResumed is the error of the handshake of a data connection that should resume the session of its control connection and does not.
var ErrNotResumed = errors.New("the data connection does not resume the session of the control connection")

// DataTLS puts TLS over a data connection. With Options.SessionReuse the client must resume the session of the control connection, and
// gets a ticket for its next data connection, because a client uses a ticket of TLS 1.3 once. Otherwise the server sends no tickets: an
// uploader that only writes (Net::FTP) would not read them, its close would reset the connection, and the end of the upload would be
// lost.
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
	// TLS 1.3 sends the ticket before it calls VerifyConnection: a refused connection would get a ticket that the next one could use.
	config.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
		if !state.DidResume {
			return nil, ErrNotResumed
		}
		return config.EncryptTicket(state, session)
	}
	return tls.Server(data, config)
}
