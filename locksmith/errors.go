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
	// ErrUnreachable: the host is unknown, the connection was refused or lost, or the server did not answer in time or said that
	// it cannot serve (421). *net.DNSError, *net.OpError or *textproto.Error is in the chain where there is one.
	ErrUnreachable = errors.New("the server cannot be reached")
	// ErrTLS: the certificate is not trusted, or the server has no TLS.
	ErrTLS = errors.New("TLS failed")
	// ErrLost: the lock was taken away, its age is over, or its directory is gone.
	ErrLost = errors.New("the lock was lost")
	// ErrUnknown: a reply was lost and could not be cleared up, so the lock may stand until its age ends; or the server does not know now.
	ErrUnknown = errors.New("the lock's state is not known")
)

// HeldError says who holds a lock that was not granted. It matches ErrHeld.
type HeldError struct {
	Path    string
	Waited  time.Duration
	Refusal Refusal // the last one
}

// Error is of the form "/phone_lock: held by phoneacc@10.0.0.5 for 12s; place 2 of 3 in the queue; waited 30s".
func (e *HeldError) Error() string {
	text := e.Path + ": " + e.Refusal.String()
	if e.Waited >= time.Second {
		text += "; waited " + e.Waited.Round(time.Second).String()
	}
	return text
}

// Unwrap makes the error match ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// Refusal is what a server said when it did not grant a lock.
type Refusal struct {
	Reply  string        // its text, without the code, on one line
	Holder string        // account@address; "" if the server does not say
	Held   time.Duration // for how long at that moment; 0 if it does not say
	At, Of int           // place in the queue and its length; 0 if it does not say
}

// String says who holds the lock, for how long, and the place in the queue.
func (r Refusal) String() string {
	text := "held by another client"
	switch {
	case r.Holder != "":
		text = "held by " + r.Holder
	case r.Reply != "" && r.Held == 0:
		text += " (" + r.Reply + ")"
	}
	if r.Holder != "" || r.Held > 0 {
		text += " for " + r.Held.Round(time.Second).String()
	}
	switch {
	case r.At > 0:
		text += fmt.Sprintf("; place %d of %d in the queue", r.At, r.Of)
	case r.Of > 0:
		text += fmt.Sprintf("; %d in the queue", r.Of)
	}
	return text
}

// because is an error that matches others besides, of which the text does not tell.
type because struct {
	error
	causes []error
}

func (b *because) Unwrap() []error { return append([]error{b.error}, b.causes...) }

// plain is the text of an error on one line, without the addresses that package net adds.
func plain(err error) string {
	var said *textproto.Error
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &said):
		return "the server said " + reply{said.Code, said.Msg}.String()
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
