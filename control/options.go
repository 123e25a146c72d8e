package control

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"
)

// Options says how connections are treated. NewHandler is required; the zero value of
// everything else means what its comment says.
type Options struct {
	// NewHandler is called for each connection before the library gets it. It must not block.
	NewHandler func(*Conn) Handler
	// MaxConnections bounds the connections at a time; 0: no bound.
	MaxConnections int
	// MaxPerAddress bounds those of one IP address; 0: no bound.
	MaxPerAddress int
	// Refusal greets a connection above the bounds; the zero value is "421 too many connections".
	// Under implicit TLS it is closed without a word.
	Refusal Reply
	// IdleTimeout is how long a client may send no command; 0: for ever. See Idler.
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
	// reply that has an Undelivered; 0: 1 s.
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

// Source is where connections come from.
type Source struct {
	net.Listener
	// TLS, if set, is for implicit TLS: the handshake is done before the greeting.
	TLS *tls.Config
}
