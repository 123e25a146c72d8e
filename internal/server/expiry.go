package server

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"time"

	"github.com/ftplockd/ftplockd/config"
)

// Expiry is the validity of a certificate that a configuration names.
type Expiry struct {
	Key     string    `json:"key"` // of the configuration: "tls.certificate", "etcd.certificate" or "etcd.ca"
	File    string    `json:"file"`
	Begins  time.Time `json:"begins"`
	Expires time.Time `json:"expires"`
}

// certificatesOf returns the certificates that a configuration names, without their validity.
func certificatesOf(c *config.Config) (all []Expiry) {
	for _, e := range []Expiry{
		{Key: "tls.certificate", File: c.TLS.Certificate}, {Key: "etcd.certificate", File: c.Etcd.Certificate}, {Key: "etcd.ca", File: c.Etcd.CA},
	} {
		if e.File != "" {
			all = append(all, e)
		}
	}
	return all
}

// Expiries returns the certificates that a configuration names. It omits files that it cannot read, because "config check" may run on
// another machine than the server.
func Expiries(c *config.Config) (all []Expiry) {
	for _, e := range certificatesOf(c) {
		if e.read() {
			all = append(all, e)
		}
	}
	return all
}

// read reads the file, and reports whether it has a certificate. Only the first certificate of a chain counts. Of several authorities the one that expires last counts.
func (e *Expiry) read() bool {
	text, err := os.ReadFile(e.File)
	if err != nil {
		return false
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return !e.Expires.IsZero()
		}
		found, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !found.NotAfter.After(e.Expires) {
			continue
		}
		if e.Begins, e.Expires = found.NotBefore.UTC(), found.NotAfter.UTC(); e.Key != "etcd.ca" {
			return true
		}
	}
}

// expiresSoon is the longest time before its end at which a certificate deserves a warning.
const expiresSoon = 21 * 24 * time.Hour

// Problem returns why the certificate is not valid, or that it expires within three weeks or a tenth of its lifetime; "": neither.
func (e Expiry) Problem(now time.Time) (text string, invalid bool) {
	at := e.Expires.Format(time.RFC3339)
	switch {
	case now.After(e.Expires):
		return fmt.Sprintf("%s has expired at %s", e.File, at), true
	case now.Before(e.Begins):
		return fmt.Sprintf("%s is valid from %s on only", e.File, e.Begins.Format(time.RFC3339)), true
	case e.Expires.Sub(now) < min(expiresSoon, e.Expires.Sub(e.Begins)/10):
		return fmt.Sprintf("%s expires at %s: renew it", e.File, at), false
	}
	return "", false
}

// checkExpiryEvery is the time between two checks of the certificates.
const checkExpiryEvery = 12 * time.Hour

// watchExpiry logs certificates that have expired or expire soon, until ctx ends.
func (s *server) watchExpiry(ctx context.Context) error {
	tick := time.NewTicker(checkExpiryEvery)
	defer tick.Stop()
	for {
		for _, e := range Expiries(s.logins.Load()) {
			switch problem, invalid := e.Problem(time.Now()); {
			case invalid:
				s.log.Error("a certificate is not valid", "key", e.Key, "reason", problem)
			case problem != "":
				s.log.Warn("a certificate expires soon", "key", e.Key, "reason", problem)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// expiryOf returns the end of a certificate; zero: it cannot be read. That of tls.certificate is the one in use.
func (s *server) expiryOf(e Expiry) time.Time {
	if e.Key == "tls.certificate" && s.tls != nil {
		return s.tls.Load().Leaf.NotAfter
	}
	e.read()
	return e.Expires
}
