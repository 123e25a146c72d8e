package locksmith

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

func TestReplyWithoutEndClosesTheConnection(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		for {
			if _, err := theirs.Write([]byte("220-more\r\n" + strings.Repeat("x", 1<<16) + "\r\n")); err != nil {
				return
			}
		}
	}()
	o := Config{Address: "h", DialContext: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
	if _, err := TryAcquire(t.Context(), o, "/a", Options{}); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "without an end") {
		t.Error(err)
	}
}

func TestCommandsWithLineEndsAreRefused(t *testing.T) {
	s := &session{control: &timedConn{}}
	if _, err := s.ask(t.Context(), "MKD a\r\nDELE b"); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	for _, s := range []Config{{Address: "h", User: "a\r\nDELE b"}, {Address: "h", Password: "a\n"}} {
		if _, err := s.resolve(); err == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
}

func TestDialReportsARefusalOfTLS(t *testing.T) {
	for reply, says := range map[string]string{
		"234 go\r\n230 in\r\n": "unencrypted reply before TLS began",
		"534 no\r\n":           "the server replied 534 no to AUTH TLS",
	} {
		ours, theirs := net.Pipe()
		go func() {
			_, _ = io.WriteString(theirs, "220 ready\r\n")
			_, _ = theirs.Read(make([]byte, 100))
			_, _ = io.WriteString(theirs, reply)
		}()
		o := Config{Address: "h", TLS: TLSExplicit, DialContext: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
		if _, err := TryAcquire(t.Context(), o, "/a", Options{}); !errors.Is(err, ErrTLS) || !strings.Contains(err.Error(), says) {
			t.Error(err)
		}
	}
}

// A server that ends in the handshake is unreachable, so Acquire tries again; its certificate may be right.
func TestAServerThatEndsInTheHandshakeIsUnreachable(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.WriteString(theirs, "220 ready\r\n")
		_, _ = theirs.Read(make([]byte, 100))
		_, _ = io.WriteString(theirs, "234 go\r\n")
		_, _ = theirs.Read(make([]byte, 1<<16)) // the handshake has begun
		theirs.Close()
	}()
	o := Config{Address: "h", TLS: TLSExplicit, DialContext: func(context.Context, string, string) (net.Conn, error) { return ours, nil }}
	if _, err := TryAcquire(t.Context(), o, "/a", Options{}); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrTLS) {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"host": "host:21", "host:2121": "host:2121", "10.0.0.1": "10.0.0.1:21", "::1": "[::1]:21", "[::1]": "[::1]:21",
		"[::1]:2121": "[::1]:2121", "fe80::1%eth0": "[fe80::1%eth0]:21",
		"": "", "host:": "", ":21": "", "[::1": "", "[]": "",
	} {
		e, err := Config{Address: address}.resolve()
		if want == "" {
			if !errors.Is(err, ErrUnreachable) {
				t.Errorf("%q: %v", address, err)
			}
			continue
		}
		if err != nil || e.Address != want {
			t.Errorf("%q is %v, %v", address, e, err)
		}
	}
	e, err := Config{Address: "host", TLS: TLSImplicit}.resolve()
	if err != nil || e.Address != "host:990" || e.tls.ServerName != "host" || e.tls.ClientSessionCache == nil || e.User != "anonymous" {
		t.Errorf("%+v, %v", e, err)
	}
}
