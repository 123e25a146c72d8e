package control

import (
	"crypto/tls"
	"log/slog"
	"time"
)

// Handler is what the driver is to one connection.
type Handler interface {
	// Begin is called with each command whose turn has come, before anything is done about it, on the goroutine that
	// reads. The command may be wrong; any command is a sign of life.
	Begin(*Command)
	// End is called when the command is over, before the next Begin. A transfer ends on the goroutine that transferred.
	End(*Command)
	// Ended is called exactly once, when the connection is over and so is its last transfer, with the reason, and
	// before the library's Read returns io.EOF.
	Ended(Reason)
	// IdleFor is called when no command came for Limits.IdleTimeout and none is under way. The connection is left
	// alone for so long, and then it is asked again; 0 or less ends it.
	IdleFor() time.Duration
	// Status returns lines for STAT, one space in front of each.
	Status() []string
	// Reset is called for REIN (RFC 959 section 4.1.1): nobody is logged in any more.
	Reset()
	// Said is called with each reply as it goes over the wire, on the goroutine that sends it. It must not keep the bytes.
	Said(lines []byte)
}

// Policy is what clients may do. It may change at any time.
type Policy struct {
	TLSRequired bool // before USER, and PROT P for data connections
	Active      bool // PORT and EPRT
}

// Options says how connections are treated. The zero value of what is not required means what its comment says.
type Options struct {
	// NewHandler is called for each connection before the library gets it. It must not block, nor call the Server. Required.
	NewHandler func(*Conn) Handler
	// Policy returns the policy of the moment. Required.
	Policy func() Policy
	// Ports are where passive ports are looked up. Required.
	Ports *Ports
	// Logger gets what nobody else is told, such as failing accepts. Required.
	Logger *slog.Logger
	// TLS is for AUTH TLS; nil: there is none.
	TLS *tls.Config
	// SessionReuse has data connections resume the TLS session of their control connection.
	SessionReuse bool
	// Features are lines of FEAT besides those of the commands in the table.
	Features []string
	// Limits are those at first, see Server.SetLimits.
	Limits Limits
	// UserTimeout is how long data may stay unacknowledged, and an idle peer silent on
	// keepalive probes, before TCP gives it up (TCP_USER_TIMEOUT, RFC 5482); 0: the system's default.
	UserTimeout time.Duration
}
