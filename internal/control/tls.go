package control

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

var errHandshake = errors.New("tls handshake failed")

// TLS returns the state of the TLS connection, or nil if there is none.
func (c *Conn) TLS() *tls.ConnectionState {
	c.mu.Lock()
	stream := c.stream
	c.mu.Unlock()
	t, ok := stream.(*tls.Conn)
	if !ok {
		return nil
	}
	state := t.ConnectionState()
	return &state
}

// secured returns what to read and write. The handshake of implicit TLS is done when it is needed first.
func (c *Conn) secured() (net.Conn, error) {
	c.mu.Lock()
	stream, handshake := c.stream, c.handshake
	c.mu.Unlock()
	if handshake == nil {
		return stream, nil
	}
	return stream, handshake()
}

// startTLS says yes in the clear and puts TLS over the wire (RFC 4217 section 4.1). What the client, or somebody on the
// way, sent in the clear behind the command is not acted on (the flaw of CVE-2011-0411).
func (c *Conn) startTLS(r Reply, config *tls.Config) {
	c.answer(r)
	c.in = input{limit: c.opts.MaxLine}
	t := tls.Server(c.wire, config)
	c.mu.Lock()
	c.stream = t
	c.mu.Unlock()
	if err := c.shake(t); err != nil {
		c.lost(err)
	}
}

// shake does the handshake, on the goroutine that the library reads and greets with.
func (c *Conn) shake(t *tls.Conn) error {
	_ = c.wire.SetReadDeadline(time.Now().Add(c.opts.HandshakeTimeout))
	err := t.Handshake()
	_ = c.wire.SetReadDeadline(c.deadline)
	if err != nil {
		return fmt.Errorf("%w: %w", errHandshake, err)
	}
	return nil
}
