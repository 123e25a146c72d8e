package control

import (
	"crypto/tls"
	"log/slog"
	"time"
)

// Handler is the driver's part of a connection.
type Handler interface {
	// Begin is called with each command in turn, before it is executed, on the goroutine that reads. The command may be malformed.
	Begin(*Command)
	// End is called when the command has ended, before the next Begin; for a transfer, on the transfer's goroutine.
	End(*Command)
	// Ended is called once with the reason, when the connection and its last transfer have ended, before Read returns io.EOF.
	Ended(Reason)
	// IdleFor is called when no command came for Limits.IdleTimeout and none is under way. It returns how long the connection may
	// stay idle before the next call; 0 or less ends the connection.
	IdleFor() time.Duration
	// Status returns lines for STAT. Each begins with a space.
	Status() []string
	// Replied is called with each reply before it is sent. It must not keep the bytes.
	Replied(lines []byte)
}

// Policy has the permissions of the configuration. It may change at any time.
type Policy struct {
	TLSRequired bool // before USER, and PROT P for data connections
	Active      bool // PORT and EPRT
}

// Options are the settings of a Server.
type Options struct {
	// NewHandler is called for each connection before the library gets it. It must not block or call the Server. Required.
	NewHandler func(*Conn) Handler
	// Policy returns the present policy. Required.
	Policy func() Policy
	// Ports are the passive ports. Required.
	Ports *Ports
	// Logger gets failures that no client sees, such as a failed accept. Required.
	Logger *slog.Logger
	// TLS is for AUTH TLS; nil: AUTH is refused.
	TLS *tls.Config
	// SessionReuse requires a data connection to resume the TLS session of its control connection.
	SessionReuse bool
	// Features are further lines of FEAT.
	Features []string
	// Limits apply until Server.SetLimits.
	Limits Limits
}
