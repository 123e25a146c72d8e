// Package driver is what ftpserverlib asks for: an afero-backed driver that treats MKD and RMD under a lock root as
// acquire and release.
//
// Its types: a [Server] is the library's MainDriver and makes a session of each connection; an [Account] is what it
// logged in as; [Settings] are what a reload may change. Not exported: client is one session, the tree and the locks as it sees
// them (ftpserver.ClientDriver, an afero.Fs, control.Handler), and transfer is one use of a data connection (the handle
// that GetHandle returns).
//
// Guarantees: MKD and RMD of a lock's name are Acquire and Release of lock.Table, and nothing else takes, moves, ages or
// removes a lock. An upload is published whole, by one rename, while its client is still there, or not at all. A file
// that a lock protects is changed by a session that speaks for an exclusive hold of it, in one step with that check.
// Replies show paths as the client knows them, never the server's. A lock is given back on behalf of a session only when
// its transfers are over.
//
// Caveats: an upload is taken for complete if its client is killed and its two connections end further apart than
// Settings.HangUp, the data connection first. Renaming a directory can give a directory in it the name of a lock; like
// every one that was not made by MKD it belongs to the host then.
//
// Start reading at fs.go, which lists what FTP calls.
package driver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/guessing"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// Options are what a Server is made of. All but TLS and Log are needed.
type Options struct {
	Tree        Tree
	Table       *lock.Table
	Clock       lock.Clock
	Directories bool // each lock has a directory in the tree
	// HostDirectories returns at most max directories with names of locks that programs on the host made, at dir or below it.
	HostDirectories func(ctx context.Context, dir lock.Name, max int) ([]*lock.HostError, error)
	TLS             *tls.Config // nil: no TLS
	SessionReuse    bool        // data connections resume the TLS session of their control connection
	Log             *slog.Logger
	Settings        Settings
	Events          *event.Bus // is told what happens; nil: nobody is
}

// Settings are what [Server.SetSettings] changes while sessions go on.
type Settings struct {
	Accounts    Accounts
	FirstPort   uint16 // of the passive ports; 0: the kernel chooses
	LastPort    uint16
	Active      bool // PORT and EPRT
	TLSRequired bool
	// DataTimeout is how long a data connection may stand still, and how long it is awaited (20 s at most). 0: for ever,
	// and 20 s.
	DataTimeout time.Duration
	// DataMinRate is how many bytes a second a download must move, over a minute. 0: any number.
	DataMinRate int
	// HangUp is how long after the end of its data connection an upload waits for the end of the control connection,
	// which tells a killed client from one that has finished. 0: not at all.
	HangUp     time.Duration
	StatusFile string // a path as accounts see it; "": none
	// ReplacedRules match the names that would be locks by default, and are not under the rules in force; nil: none. The 257 of
	// such a directory contains the default rule.
	ReplacedRules *lock.Rules
	// LeftoverMaxAge is how long what was left in a lock is kept; 0: for ever.
	LeftoverMaxAge time.Duration
	// PublicAddress returns the IPv4 address that PASV tells clients; nil, or the zero Addr: the one they
	// connected to. Clients on the server's own machine are always told that. It must not block.
	PublicAddress func() netip.Addr
}

// Server is the part of ftplockd that ftpserverlib drives.
type Server struct {
	tree         Tree
	table        *lock.Table
	clock        lock.Clock
	directories  bool
	hosts        func(ctx context.Context, dir lock.Name, max int) ([]*lock.HostError, error)
	tls          *tls.Config
	sessionReuse bool
	log          *slog.Logger
	ports        *control.Ports
	conns        *control.Server // nil before Control
	settings     atomic.Pointer[Settings]
	events       *event.Bus
	transfers    transfers
	rateOver     time.Duration // over which DataMinRate counts
	catchUp      time.Duration // how long an upload waits at most for the reader of commands; microseconds will do, unless the machine is busy
	maxLooks     int           // how many names a pattern in a listing may look at
	longestGlob  time.Duration // how long a pattern of SITE LOCKS may be worked on
	listings     atomic.Int64  // how many bytes listings hold beyond listingFree
	listingsMax  int64         // how many they may
	guessing     *guessing.Limiter
	digests      *digests
	context      context.Context // of what sessions do; ends with Close
	cancel       context.CancelFunc

	// layout keeps names meaning what they mean: it is held, disk access included, shared by changes of protected
	// files from the look at their names on, exclusively by the renaming of directories with protected files, see lockLayout. Nothing that
	// only reads needs it. Nobody waits for the table with it held.
	layout sync.RWMutex
}

// longestWait is how long a data connection is awaited at most.
const longestWait = 20 * time.Second

// New makes a Server. It does not own the tree and the table.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		tree: o.Tree, table: o.Table, clock: o.Clock, directories: o.Directories, hosts: o.HostDirectories, log: o.Log,
		tls: o.TLS, sessionReuse: o.SessionReuse, events: o.Events,
		maxLooks: 250_000, listingsMax: listingsMax, longestGlob: longestGlob, rateOver: time.Minute, catchUp: 20 * time.Millisecond, guessing: guessing.New(ctx, o.Log, guessing.FirstDelay), digests: newDigests(),
		context: ctx, cancel: cancel,
	}
	s.ports = control.NewPorts(control.PortOptions{
		Range:   func() (first, last uint16) { return s.settings.Load().FirstPort, s.settings.Load().LastPort },
		Timeout: s.connectWithin,
	})
	if s.hosts == nil || !s.directories {
		s.hosts = func(context.Context, lock.Name, int) ([]*lock.HostError, error) { return nil, nil }
	}
	s.SetSettings(o.Settings)
	return s
}

// SetSettings takes other settings; sessions see them from their next command on. An account that is logged in keeps
// what it had. Active data connections are awaited as long as at the start.
func (s *Server) SetSettings(settings Settings) { s.settings.Store(&settings) }

// connectWithin is how long a data connection is awaited: no longer than it may stand still later.
func (s *Server) connectWithin() time.Duration {
	if timeout := s.settings.Load().DataTimeout; timeout > 0 {
		return min(timeout, longestWait)
	}
	return longestWait
}

// Control makes the control connections, once. It fills in what they need of the driver.
func (s *Server) Control(o control.Options) *control.Server {
	o.NewHandler = s.newClient
	o.Policy = func() control.Policy {
		settings := s.settings.Load()
		return control.Policy{TLSRequired: settings.TLSRequired, Active: settings.Active}
	}
	o.TLS, o.SessionReuse, o.Ports, o.Logger = s.tls, s.sessionReuse, s.ports, s.log
	// STOR STAGED says that a file is published by one rename when its upload is complete, so that a client need not do
	// that itself.
	o.Features = []string{"SITE LOCK", "SITE LOCK DISCONNECT", "SITE LOCK FACTS " + factNames, "SITE LOCKS", "SITE WAIT", "STOR STAGED"}
	s.conns = control.NewServer(o)
	return s.conns
}

// Serve runs ftpserverlib on a listener of the control connections, until that is closed. It returns nil then.
func (s *Server) Serve(l net.Listener) error {
	library := ftpserver.NewFtpServer(&library{s, l})
	library.Logger = slog.New(slog.DiscardHandler)
	return library.ListenAndServe()
}

// library is the MainDriver of one ftpserverlib server: the Server and its listener.
type library struct {
	*Server
	listener net.Listener
}

var (
	_ ftpserver.MainDriver                         = (*library)(nil)
	_ ftpserver.MainDriverExtensionPassiveWrapper  = (*library)(nil)
	_ ftpserver.MainDriverExtensionPostAuthMessage = (*library)(nil)
	_ ftpserver.MainDriverExtensionQuitMessage     = (*library)(nil)
)

// GetSettings implements ftpserver.MainDriver. Control checks where data connections come from and go to.
func (l *library) GetSettings() (*ftpserver.Settings, error) {
	return &ftpserver.Settings{
		Listener:                 l.listener,
		IdleTimeout:              -1, // control counts idle time
		ConnectionTimeout:        int((l.connectWithin() + time.Second - 1) / time.Second),
		PassiveTransferPortRange: l.ports,
		PublicIPResolver:         l.publicAddress,
		PasvConnectionsCheck:     ftpserver.IPMatchDisabled,
		ActiveConnectionsCheck:   ftpserver.IPMatchDisabled,
		ActiveTransferPortNon20:  true,
		EnableHASH:               true,
		DisableASCIIConversion:   true, // transfers convert
	}, nil
}

// ClientConnected implements ftpserver.MainDriver with the text of the greeting.
func (s *Server) ClientConnected(ftpserver.ClientContext) (string, error) {
	return "ftplockd ready", nil
}

// ClientDisconnected implements ftpserver.MainDriver. Control told the session before.
func (s *Server) ClientDisconnected(ftpserver.ClientContext) {}

// QuitMessage implements ftpserver.MainDriverExtensionQuitMessage.
func (s *Server) QuitMessage() string { return "goodbye" }

var errNoTLS = errors.New("TLS is not configured")

// GetTLSConfig implements ftpserver.MainDriver. The library asks for it for data connections, and does no handshake: transfers
// put TLS of their own in place of its.
func (s *Server) GetTLSConfig() (*tls.Config, error) {
	if s.tls == nil {
		return nil, errNoTLS
	}
	return s.tls, nil
}

// WrapPassiveListener implements ftpserver.MainDriverExtensionPassiveWrapper.
func (s *Server) WrapPassiveListener(l net.Listener) (net.Listener, error) { return s.ports.Wrap(l) }

// publicAddress is the one that a reply to PASV names.
func (s *Server) publicAddress(cc ftpserver.ClientContext) (string, error) {
	ap, err := netip.ParseAddrPort(cc.LocalAddr().String())
	if err != nil {
		return "", err
	}
	local := ap.Addr().Unmap()
	if find := s.settings.Load().PublicAddress; find != nil && !local.IsLoopback() {
		if public := find().Unmap(); public.Is4() {
			return public.String(), nil
		}
	}
	return local.String(), nil
}

// Close ends what the server does. Call it when the listeners are closed and no control connection is left.
func (s *Server) Close() { s.cancel() }

// Sweep removes the files of ended locks that were moved aside before LeftoverMaxAge.
func (s *Server) Sweep(context.Context) error {
	if age := s.settings.Load().LeftoverMaxAge; age > 0 {
		return s.tree.SweepLeftovers(s.clock.Now().Wall.Add(-age))
	}
	return nil
}
