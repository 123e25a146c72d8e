package server

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"

	"github.com/ftplockd/ftplockd/config"
)

// certificate is the server's TLS certificate. A reload replaces it.
type certificate struct {
	atomic.Pointer[tls.Certificate]
}

// readPair reads a certificate and its key, both in PEM.
func readPair(file, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(file, key)
	if err != nil {
		return nil, fmt.Errorf("tls.certificate %s, tls.key %s: %w", file, key, err)
	}
	return &pair, nil
}

// openCertificate reads the certificate of a configuration; nil: it has no TLS.
func openCertificate(c *config.Config) (*certificate, error) {
	if c.TLS.Mode == config.TLSOff {
		return nil, nil
	}
	pair, err := readPair(c.TLS.Certificate, c.TLS.Key)
	if err != nil {
		return nil, err
	}
	opened := new(certificate)
	opened.Store(pair)
	return opened, nil
}

// config returns the configuration of TLS for listeners and for AUTH TLS.
func (c *certificate) config() *tls.Config {
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.Load(), nil }
	return &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12}
}
