package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is the server's TLS certificate. It is read again when its files
// have changed, so that a renewed one is used without a restart; one that
// cannot be read is logged, and the old one goes on.
type certificate struct {
	log *slog.Logger

	mu      sync.Mutex
	file    string
	key     string
	loaded  *tls.Certificate
	changed [2]time.Time // modification times of file and key when it was loaded
	checked time.Time
}

// checkEvery is how often the files are looked at, at most.
const checkEvery = time.Second

// loadCertificate reads a certificate and its key, both in PEM.
func loadCertificate(file, key string, log *slog.Logger) (*certificate, error) {
	pair, err := readPair(file, key)
	if err != nil {
		return nil, err
	}
	c := &certificate{log: log}
	c.use(file, key, pair)
	return c, nil
}

func readPair(file, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(file, key)
	if err != nil {
		return nil, fmt.Errorf("tls.certificate %s, tls.key %s: %w", file, key, err)
	}
	return &pair, nil
}

// use presents a pair from now on, and reads the files again when they change.
func (c *certificate) use(file, key string, pair *tls.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.file, c.key, c.loaded = file, key, pair
	c.changed = modified(file, key)
}

// get is tls.Config.GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.checked) < checkEvery {
		return c.loaded, nil
	}
	c.checked = now
	changed := modified(c.file, c.key)
	if changed == c.changed {
		return c.loaded, nil
	}
	loaded, err := readPair(c.file, c.key)
	if err != nil {
		// Half of a pair may have been written; it is tried again at the next look.
		c.log.Error("the renewed certificate cannot be used, the old one goes on", "err", err)
		return c.loaded, nil
	}
	c.loaded, c.changed = loaded, changed
	c.log.Info("took over a renewed certificate", "file", c.file)
	return c.loaded, nil
}

// config is for listeners and for AUTH TLS.
func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}
}

func modified(files ...string) (times [2]time.Time) {
	for i, f := range files {
		if info, err := os.Stat(f); err == nil {
			times[i] = info.ModTime()
		}
	}
	return times
}
