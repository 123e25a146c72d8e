package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
)

// certificates returns certificates in PEM with these lifetimes, which begin at start.
func certificates(t *testing.T, start time.Time, lifetimes ...time.Duration) (text []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, lifetime := range lifetimes {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: start, NotAfter: start.Add(lifetime)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return text
}

func TestCertificatesThatExpire(t *testing.T) {
	const day = 24 * time.Hour
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		lifetimes []time.Duration
		after     time.Duration
		authority bool
		want      string // "": no problem
		invalid   bool
	}{
		"valid":                              {lifetimes: []time.Duration{3650 * day}, after: 3600 * day},
		"expires in three weeks":             {lifetimes: []time.Duration{3650 * day}, after: 3630 * day, want: "expires at 2035-12-30T00:00:00Z: renew it"},
		"a short lifetime":                   {lifetimes: []time.Duration{day}, after: 20 * time.Hour},
		"the end of a short lifetime":        {lifetimes: []time.Duration{day}, after: 22 * time.Hour, want: "expires at"},
		"expired":                            {lifetimes: []time.Duration{day}, after: 2 * day, want: "has expired at 2026-01-02T00:00:00Z", invalid: true},
		"not valid yet":                      {lifetimes: []time.Duration{day}, after: -day, want: "is valid from 2026-01-01T00:00:00Z on only", invalid: true},
		"an authority behind a certificate":  {lifetimes: []time.Duration{day, 300 * day}, after: 2 * day, want: "has expired", invalid: true},
		"a new authority beside an old one":  {lifetimes: []time.Duration{day, 300 * day}, after: 2 * day, authority: true},
		"an old authority behind a new one":  {lifetimes: []time.Duration{300 * day, day}, after: 2 * day, authority: true},
		"both authorities of the file ended": {lifetimes: []time.Duration{day, 2 * day}, after: 3 * day, authority: true, want: "has expired", invalid: true},
	} {
		t.Run(name, func(t *testing.T) {
			conf, file := config.Default(), filepath.Join(t.TempDir(), "file")
			if conf.Etcd.Certificate = file; c.authority {
				conf.Etcd.Certificate, conf.Etcd.CA = "", file
			}
			if err := os.WriteFile(file, certificates(t, start, c.lifetimes...), 0o600); err != nil {
				t.Fatal(err)
			}
			found := Expiries(conf)
			if len(found) != 1 {
				t.Fatalf("found %v", found)
			}
			problem, invalid := found[0].Problem(start.Add(c.after))
			if !strings.Contains(problem, c.want) || (problem == "") != (c.want == "") || invalid != c.invalid {
				t.Errorf("%q, invalid %v", problem, invalid)
			}
		})
	}
}
