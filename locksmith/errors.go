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

// Each error of this package matches one of these, or the error and the cause of a context that has ended.
var (
	// ErrHeld: another client holds the lock, or the server does not grant it at the moment, as during lock_delay. The error is a *HeldError.
	ErrHeld = errors.New("held by another client")
	// ErrRefused: the server refuses the request for good: there is no such directory, no permission, or a limit of the session.
	ErrRefused = errors.New("refused")
	// ErrLogin: the account or the password is wrong.
	ErrLogin = errors.New("login refused")
	// ErrUnreachable: the host is unknown, the connection was refused or lost, or the server did not answer in time or
	// cannot serve (421). The chain has a *net.DNSError, *net.OpError or *textproto.Error if there is one.
	ErrUnreachable = errors.New("the server cannot be reached")
	// ErrTLS: the certificate is not trusted, or the server has no TLS.
	ErrTLS = errors.New("TLS failed")
	// ErrLost: the lock was taken away, its lease has ended, or its directory is gone.
	ErrLost = errors.New("the lock was lost")
	// ErrReleased: the lock was released before.
	ErrReleased = errors.New("the lock was released")
	// ErrUnknown: the reply to MKD or RMD was lost, so the lock may be held until its age ends; or the server cannot check the lock at the moment.
	ErrUnknown = errors.New("the lock's state is not known")
	// ErrTransfer: a transfer failed although the server permits it: the data connection was lost, the file on the server has another size, or the server
	// replied that it cannot do it now (4xx). The same transfer may succeed later.
	ErrTransfer = errors.New("the transfer failed")
	// ErrLocal: the reader of Put or the writer of Get failed, or the reader does not have the announced size. The error also matches that of the reader
	// or writer.
	ErrLocal = errors.New("the source or the destination failed")
)

// HeldError describes the holder of a lock that was refused. It matches ErrHeld.
type HeldError struct {
	Path    string
	Holder  string        // account@address; "" if unknown, or if no client holds the lock
	Reason  string        // the server's reply, if no client holds the lock, as during lock_delay; else ""
	Note    string        // of the holder, see [Options]; "": none
	Held    time.Duration // the time from the grant to the server's answer; 0 if unknown
	Age     time.Duration // the time since that answer, at the end of a wait; 0: now
	Waiting int           // the length of the queue; 0 if unknown
}

// Error is of the form "/phone_lock: held by phoneacc@10.0.0.5 for 12s; 3 in the queue". A note follows the holder in parentheses, and ", 20s ago" the
// time if Age is a second or more. The Reason replaces the holder.
func (e *HeldError) Error() string {
	text := e.Path + ": held by another client"
	switch {
	case e.Holder != "":
		text = e.Path + ": held by " + e.Holder
	case e.Reason != "":
		text = e.Path + ": " + strings.TrimPrefix(e.Reason, e.Path+": ")
	}
	if e.Note != "" {
		text += " (" + e.Note + ")"
	}
	if e.Holder != "" || e.Held > 0 {
		text += " for " + e.Held.Round(time.Second).String()
	}
	if e.Age >= time.Second {
		text += ", " + e.Age.Round(time.Second).String() + " ago"
	}
	if e.Waiting > 0 {
		text += fmt.Sprintf("; %d in the queue", e.Waiting)
	}
	return text
}

// Unwrap makes the error match ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// causedError is an error that also matches causes which its text does not contain.
type causedError struct {
	error
	causes []error
}

func (e *causedError) Unwrap() []error { return append([]error{e.error}, e.causes...) }

// ended returns the error of a context that has ended: its cause, which also matches context.Canceled or context.DeadlineExceeded.
func ended(ctx context.Context) error {
	return &causedError{context.Cause(ctx), []error{ctx.Err()}}
}

// withEnd returns an error that also matches those of ctx, if ctx has ended.
func withEnd(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return &causedError{err, []error{ended(ctx)}}
}

// plain returns the text of an error on one line, without the addresses that package net adds.
func plain(err error) string {
	var replied *textproto.Error
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &replied):
		return "the server replied " + reply{replied.Code, replied.Msg}.String()
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
