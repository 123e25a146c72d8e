package locksmith

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"strings"
	"time"
)

// The sentinels that errors of this package match. The end of a context is matched by its cause besides.
var (
	// ErrHeld: another client holds the lock. The error is a *HeldError.
	ErrHeld = errors.New("held by another client")
	// ErrRefused: the server will never grant it like this: no such directory, no permission, a limit of the session.
	ErrRefused = errors.New("refused")
	// ErrLogin: the account or the password is wrong.
	ErrLogin = errors.New("login refused")
	// ErrUnreachable: the host is unknown, the connection was refused or lost, or the server did not answer in time or
	// cannot serve (421). *net.DNSError, *net.OpError or *textproto.Error is in the chain where there is one.
	ErrUnreachable = errors.New("the server cannot be reached")
	// ErrTLS: the certificate is not trusted, or the server has no TLS.
	ErrTLS = errors.New("TLS failed")
	// ErrLost: the lock was taken away, its lease is over, or its directory is gone.
	ErrLost = errors.New("the lock was lost")
	// ErrUnknown: the reply to MKD or RMD was lost, so the lock may stand until its age ends; or the server cannot tell now.
	ErrUnknown = errors.New("the lock's state is not known")
)

// HeldError describes who holds a lock that was not granted. It matches ErrHeld.
type HeldError struct {
	Path    string
	Holder  string        // account@address; "" if the server does not tell
	Held    time.Duration // for how long at that moment; 0 if the server does not tell
	Waiting int           // clients in the queue; 0 if the server does not tell
	Waited  time.Duration // how long Acquire has tried
}

// Error is of the form "/phone_lock: held by phoneacc@10.0.0.5 for 12s; 3 in the queue; waited 30s".
func (e *HeldError) Error() string {
	text := e.Path + ": held by another client"
	if e.Holder != "" {
		text = e.Path + ": held by " + e.Holder
	}
	if e.Holder != "" || e.Held > 0 {
		text += " for " + e.Held.Round(time.Second).String()
	}
	if e.Waiting > 0 {
		text += fmt.Sprintf("; %d in the queue", e.Waiting)
	}
	if e.Waited >= time.Second {
		text += "; waited " + e.Waited.Round(time.Second).String()
	}
	return text
}

// Unwrap makes the error match ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// because is an error that matches others besides, of which its text does not tell.
type because struct {
	error
	causes []error
}

func (b *because) Unwrap() []error { return append([]error{b.error}, b.causes...) }

// plain returns the text of an error on one line, without the addresses that package net adds.
func plain(err error) string {
	var replied *textproto.Error
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &replied):
		return "the server said " + reply{replied.Code, replied.Msg}.String()
	case errors.As(err, &dns) && dns.IsNotFound:
		return "unknown host"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the server hung up"
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
