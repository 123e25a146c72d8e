package control

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"
)

// Handler is what the driver is to one connection.
type Handler interface {
	// Begin is called with each command whose turn has come, before anything is done about it, on the goroutine that
	// reads. The command may be wrong; any command is a sign of life.
	Begin(*Command)
	// End is called when the command is over, before the next Begin. A transfer ends on the goroutine that transferred.
	End(*Command)
	// Ended is called exactly once, when the connection is over, with the reason, and before the library's Read
	// returns io.EOF. The command under way was told by an [Interruption].
	Ended(Reason)
	// IdleFor is called when no command came for Options.IdleTimeout and none is under way. The connection is left
	// alone for so long, and then it is asked again; 0 or less ends it.
	IdleFor() time.Duration
	// Status returns lines for STAT, one space in front of each.
	Status() []string
	// Reset is called for REIN (RFC 959 section 4.1.1): nobody is logged in any more.
	Reset()
}

// Policy is what clients may do. It may change at any time.
type Policy struct {
	TLSRequired bool // before USER, and PROT P for data connections
	Active      bool // PORT and EPRT
}

// Options says how connections are treated. NewHandler is required; the zero value of everything else means what its
// comment says.
type Options struct {
	// NewHandler is called for each connection before the library gets it. It must not block.
	NewHandler func(*Conn) Handler
	// Policy returns the policy of the moment; nil: no TLS is required, active connections are refused.
	Policy func() Policy
	// TLS is for AUTH TLS; nil: there is none.
	TLS *tls.Config
	// Features are lines of FEAT besides those of the commands in the table.
	Features []string
	// Ports are where passive ports are looked up; nil: there are none.
	Ports *Ports
	// MaxConnections bounds the connections at a time; 0: no bound.
	MaxConnections int
	// MaxPerAddress bounds those of one IP address; 0: no bound.
	MaxPerAddress int
	// Refusal greets a connection above the bounds; the zero value is "421 too many connections".
	// Under implicit TLS it is closed without a word.
	Refusal Reply
	// IdleTimeout is how long a client may send no command; 0: for ever. See Handler.IdleFor.
	IdleTimeout time.Duration
	// IdleReply is said then; the zero value is "421 idle timeout".
	IdleReply Reply
	// WriteTimeout is how long the client may leave a reply unread that does not fit
	// into the socket's buffers; 0: 30 s.
	WriteTimeout time.Duration
	// HandshakeTimeout is how long a TLS handshake may take; 0: 10 s.
	HandshakeTimeout time.Duration
	// UserTimeout is how long data may stay unacknowledged, and an idle peer silent on
	// keepalive probes, before TCP gives it up (TCP_USER_TIMEOUT, RFC 5482); 0: the system's default.
	UserTimeout time.Duration
	// AckTimeout is how long the end of a connection waits for the acknowledgement of a
	// reply for which Command.Lost was called; 0: 1 s.
	AckTimeout time.Duration
	// MaxLine is how many bytes a command line may have, without its end; 0: 8 KiB.
	// A longer one is told 500.
	MaxLine int
	// Logger gets what nobody else is told, such as failing accepts; nil: nothing.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.NewHandler == nil {
		panic("control: Options.NewHandler is nil")
	}
	if o.Policy == nil {
		o.Policy = func() Policy { return Policy{} }
	}
	if o.Ports == nil {
		o.Ports = NewPorts(PortOptions{})
	}
	if o.Refusal.Code == 0 {
		o.Refusal = Reply{Code: 421, Text: "too many connections"}
	}
	if o.IdleReply.Code == 0 {
		o.IdleReply = Reply{Code: 421, Text: "idle timeout"}
	}
	orDefault(&o.WriteTimeout, 30*time.Second)
	orDefault(&o.HandshakeTimeout, 10*time.Second)
	orDefault(&o.AckTimeout, time.Second)
	if o.MaxLine <= 0 {
		o.MaxLine = 8 << 10
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func orDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// Limits are the options that can be changed while connections go on.
type Limits struct {
	MaxConnections int           // see Options
	MaxPerAddress  int           // see Options
	IdleTimeout    time.Duration // see Options; connections heed it at once
}

// Source is where connections come from.
type Source struct {
	net.Listener
	// TLS, if set, is for implicit TLS: the handshake is done before the greeting.
	TLS *tls.Config
}
