package main

import (
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/locksmith"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url, address, user, password, path string
		tls                                locksmith.TLSMode
	}{
		{"ftp://h/phone_lock", "h", "", "", "phone_lock", locksmith.TLSOff},
		{"ftp://bob@h:2121/a/b_lock", "h:2121", "bob", "", "a/b_lock", locksmith.TLSOff},
		{"ftp://bob:p%40ss%2Fword@h/x", "h", "bob", "p@ss/word", "x", locksmith.TLSOff},
		{"ftp://h/%2Flocks/x", "h", "", "", "/locks/x", locksmith.TLSOff},
		{"ftp://h/%2flocks/x", "h", "", "", "/locks/x", locksmith.TLSOff},
		{"ftp://h//x", "h", "", "", "/x", locksmith.TLSOff},
		{"ftp://h/a%20b%3Fc%23", "h", "", "", "a b?c#", locksmith.TLSOff},
		{"ftp://h/a+b;type=x", "h", "", "", "a+b;type=x", locksmith.TLSOff},
		{"ftps://[::1]:990/x", "[::1]:990", "", "", "x", locksmith.TLSImplicit},
		{"ftpes://[::1]/x/", "::1", "", "", "x", locksmith.TLSExplicit},
		{"ftp://h", "h", "", "", "", locksmith.TLSOff},
	} {
		got, err := parseURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		s := got.connect
		if s.Address != c.address || s.User != c.user || s.Password != c.password || got.path != c.path || s.TLS != c.tls {
			t.Errorf("%s: %+v", c.url, s)
		}
	}
}

func TestURLErrorsDoNotContainThePassword(t *testing.T) {
	for url, want := range map[string]string{
		"http://bob:s3cret@h/x":     "begins with ftp://",
		"ftp:///x":                  "URL has no host",
		"ftp://bob:s3cret@h/x?y":    "%3F",
		"ftp://bob:s3cret@h/x#y":    "%23",
		"ftp://bob:s3cret@h/a%2Fb":  "%2F belongs at the beginning",
		"ftp://bob:s3cret@h/a/%2Fb": "%2F belongs at the beginning",
		"ftp://bob:s3cret@h/a%0D":   "one line",
		"ftp://bob:s3/cret@h/x":     "written %2F",
		"ftp://bob:s3cret@h:x/x":    "not a URL",
		"ftp://bob:s3%cret@h/x":     "write % as %25",
	} {
		_, err := parseURL(url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		} else if strings.Contains(err.Error(), "s3") {
			t.Errorf("%s: the password is shown: %v", url, err)
		}
	}
	got, err := parseURL("ftp://bob:s3cret@h/x")
	if err != nil || got.name != "ftp://bob@h/x" {
		t.Errorf("named %q, %v", got.name, err)
	}
}
