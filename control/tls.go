package control

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"
)

var errHandshake = errors.New("tls handshake failed")

// startTLS says yes in the clear and puts TLS over the wire (RFC 4217 section 4.1). What the
// client, or somebody on the way, sent in the clear behind the command is not acted on.
func (c *Conn) startTLS(r Reply, config *tls.Config) {
	if c.TLS() != nil {
		c.answer(Reply{Code: 503, Text: "TLS is already active"})
		return
	}
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

// shake does the handshake, in the goroutine that the library reads and greets with. To
// Close it is a Read: it has the socket's input to itself.
func (c *Conn) shake(t *tls.Conn) error {
	c.mu.Lock()
	inRead := c.inRead
	c.inRead = true
	c.mu.Unlock()
	_ = c.wire.SetReadDeadline(time.Now().Add(c.opts.HandshakeTimeout))
	err := t.Handshake()
	_ = c.wire.SetReadDeadline(c.deadline)
	c.mu.Lock()
	c.shaken = true
	c.inRead = inRead
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%w: %w", errHandshake, err)
	}
	return nil
}
