package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/locksmith"
)

// The exit statuses are those of BSD's sysexits.h where it has one. 126 and above are those of a shell. Netlock also exits with the status
// of its command.
const (
	exitOK          = 0
	exitUsage       = 64  // the command line is wrong
	exitNoFile      = 66  // a local file cannot be read
	exitNoHost      = 68  // the server's name is unknown
	exitNoServer    = 69  // no server answers in time, or it has too many connections
	exitInternal    = 70  // anything else
	exitRefused     = 73  // the server refuses the lock for good
	exitFailed      = 74  // a transfer, or a local file that cannot be written
	exitHeld        = 75  // another client holds the lock; it may be free later
	exitProtocol    = 76  // TLS failed, or the lock's state is unknown
	exitLogin       = 77  // wrong account or password
	exitConfig      = 78  // there is no password, or ~/.netrc is wrong
	exitLost        = 79  // the lock was lost while it was held
	exitNotRunnable = 126 // the command cannot be started
	exitNotFound    = 127 // there is no such command
	exitSignal      = 128 // and the signal's number
)

// statusText is the part of --help and of the manual page that explains the exit statuses.
const statusText = `Exit statuses:
  0    all went well
  64   the command line is wrong
  66   a local file cannot be read
  68   the server's name is unknown
  69   no server answers there, or not in time, or it has too many connections
  70   any other error
  73   the lock is refused: not allowed, no such directory
  74   a transfer failed, or a local file cannot be written
  75   another client holds the lock (-n, -w)
  76   TLS failed, or a reply was lost and the lock's state is not known
  77   the login is refused
  78   there is no password, or ~/.netrc cannot be used
  79   the lock was lost while it was held; the command was ended
  126, 127  the command cannot be started, is not there
  128+n     ended by signal n
Otherwise the exit status is the command's.`

// statusError is an error with an exit status.
type statusError struct {
	status int
	err    error     // nil: there is nothing to write
	quiet  bool      // report does not write err
	signal os.Signal // netlock dies of it; nil: netlock exits with status
	group  bool      // the process group of netlock gets the signal, too
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprint("exit status ", e.status)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// fail makes a statusError of a text.
func fail(status int, format string, args ...any) error {
	return &statusError{status: status, err: fmt.Errorf(format, args...)}
}

// exitOnly returns a status without an error.
func exitOnly(status int) error { return &statusError{status: status} }

// interrupted is the cause of a context that ended with a signal.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return "interrupted (" + i.signal.String() + ")" }

// classify adds a status and a hint to an error of locksmith or of a context. An error with a status keeps it.
func classify(err error, t *target) error {
	var known *statusError
	if err == nil || errors.As(err, &known) {
		return err
	}
	status, hint := statusAndHint(err, t)
	if hint != "" {
		hint = "; " + hint
	}
	e := &statusError{status: status, err: fmt.Errorf("%s: %w%s", t.name, err, hint), quiet: t.quiet && errors.Is(err, locksmith.ErrHeld)}
	if i, ok := errors.AsType[interrupted](err); ok {
		e.signal = i.signal
	}
	return e
}

// statusAndHint returns the status of an error, and a hint. The first case that matches applies.
func statusAndHint(err error, t *target) (status int, hint string) {
	var signal interrupted
	var replied *textproto.Error
	dns, isDNS := errors.AsType[*net.DNSError](err)
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case errors.As(err, &signal):
		return exitSignal + int(signal.signal.(syscall.Signal)), ""
	case is(locksmith.ErrUnknown):
		return exitProtocol, "the lock may be held until its age ends; see \"netlock info\""
	case is(locksmith.ErrLost):
		return exitLost, ""
	case is(locksmith.ErrHeld):
		return t.conflict, ""
	case is(locksmith.ErrLogin) && t.connect.TLS == locksmith.TLSOff && strings.Contains(err.Error(), "requires TLS"):
		return exitLogin, "begin the URL with ftpes://"
	case is(locksmith.ErrLogin):
		return exitLogin, "check user (" + t.user() + ") and password"
	case is(locksmith.ErrTLS):
		return exitProtocol, "check the port and the server's certificate; implicit TLS has a port of its own, usually 990"
	case isDNS && dns.IsNotFound:
		return exitNoHost, "check the address"
	case is(locksmith.ErrUnreachable) && errors.As(err, &replied):
		return exitNoServer, ""
	case is(locksmith.ErrUnreachable), is(context.DeadlineExceeded):
		return exitNoServer, "check the address and whether the server runs"
	case is(locksmith.ErrRefused) && strings.Contains(err.Error(), "no rule of the server makes"):
		return exitRefused, t.nearName()
	case is(locksmith.ErrRefused):
		return exitRefused, "check the lock's path (" + t.path + ") and the rights of the account"
	}
	return exitInternal, ""
}

// report writes the error of a command on one line, and returns its exit status.
func report(cmd *cobra.Command, err error) int {
	var known *statusError
	switch {
	case err == nil:
		return exitOK
	case !errors.As(err, &known):
		message(cmd.ErrOrStderr(), fmt.Sprintf("%s; try \"%s --help\"", err, cmd.CommandPath()))
		return exitUsage
	case known.err != nil && !known.quiet:
		message(cmd.ErrOrStderr(), err.Error())
	}
	return known.status
}

// oneLine returns a text of a server on one line, without characters that move a terminal's cursor.
func oneLine(s string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(clean)
}
