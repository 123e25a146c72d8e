// Package driver is the driver of ftpserverlib: an afero.Fs for each session, in which MKD and RMD of a lock's name acquire and release
// the lock.
//
// Its types: a [Server] is the library's MainDriver, with a session for each connection; [Accounts] checks logins;
// [Settings] can be changed by a reload. Not exported: client is one session with its view of the tree and the locks
// (ftpserver.ClientDriver, afero.Fs, control.Handler), and transfer is one use of a data connection (the handle
// that GetHandle returns).
//
// Guarantees: MKD and RMD of a lock's name acquire and release it in lock.Table. No other command but SITE LOCK RENEW
// and BREAK changes a lock, apart from automatic locks. Time, and the end of a connection, end locks, too. An upload is published whole, by one rename, or not at all. It is not published if its client has hung up; a QUIT
// that the client sent before the 150 does not count as hanging up. The server changes a protected file only while the session's job (all sessions
// of one account with one job key) holds the lock exclusively, and makes check and change one step. Replies contain paths as the client sees them, never the server's. The locks of
// a session are released only when its transfers are over.
//
// Caveats: if the control connection of a killed client ends more than hangUpWait after its data connection, a partial upload is
// published. Renaming a directory can give a directory in it the name of a lock. The server then treats that directory as a lock held by a
// program on the host, like every such directory that MKD did not make.
//
// Start reading at fs.go, the list of the methods that the library calls. publish.go has the end of an upload.
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
	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/guessing"
	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// Options are the parts of a Server. TLS, Log and Events may be nil.
type Options struct {
	Tree        Tree
	Table       *lock.Table
	Jobs        *job.Manager
	Clock       lock.Clock
	Directories bool // each lock has a directory in the tree
	// HostDirectories returns at most max directories with names of locks that programs on the host made, at dir or below it. If ctx ends
	// before it has read everything below dir, it returns the error of ctx.
	HostDirectories func(ctx context.Context, dir lock.Name, max int) ([]*lock.HostError, error)
	TLS             *tls.Config // nil: no TLS
	SessionReuse    bool        // data connections resume the TLS session of their control connection
	Log             *slog.Logger
	Guessing        *guessing.Limiter // of logins
	Settings        Settings
	Events          *event.Bus // gets the events of sessions
}

// Settings can be changed by [Server.SetSettings] while sessions go on.
type Settings struct {
	Accounts Accounts
	FTP      config.FTP
	TLS      config.TLS // whether logins need TLS
	Files    config.Files
	Locks    config.Locks // how long leftovers are kept
	// PublicAddress returns the IPv4 address for replies to PASV. If it is nil or returns the zero Addr, and for clients on the server's
	// own machine, the reply contains the address that the client connected to. It must not block.
	PublicAddress func() netip.Addr
}

// Server is the MainDriver of ftpserverlib.
type Server struct {
	tree            Tree
	nothing         afero.Fs // contains nothing, and refuses every change with fs.ErrPermission
	table           *lock.Table
	jobs            *job.Manager
	clock           lock.Clock
	directories     bool
	hostDirectories func(ctx context.Context, dir lock.Name, max int) ([]*lock.HostError, error)
	tls             *tls.Config
	sessionReuse    bool
	log             *slog.Logger
	ports           *control.Ports
	conns           *control.Server // nil before Control
	settings        atomic.Pointer[Settings]
	events          *event.Bus
	transfers       sync.Map // from each *transfer with an open data connection to its *progress
	watching        sync.WaitGroup
	rateOver        time.Duration // the period of DataMinRate
	catchUp         time.Duration // an upload waits at most so long for the goroutine that reads commands to handle an ABOR or QUIT; usually microseconds
	bounds          bounds
	logins          Logins
	digests         digests
	context         context.Context // of the commands; Close ends it
	cancel          context.CancelFunc

	// layout keeps directories from being renamed while a protected file in them is changed. Changes of protected files hold it shared, from
	// the resolving of their names to the end of the change on disk. A rename of a directory with protected files holds it
	// exclusively, see lockLayout. Reads do not need it. Lock it only in the function that lock.Session.Write calls, which runs without a mutex of
	// the table: the order is Exclude, Write, layout. With it locked, call only functions of the table that do not wait, such as Publish.
	layout sync.RWMutex
}

// bounds limit the work of one command. Tests set smaller ones.
type bounds struct {
	locks   int           // in SITE LOCKS and in the status file
	ordered int           // names in a listing with -t, -S or -r
	piece   int           // names of a directory that are in memory at a time, unless the client wants them in another order
	below   int           // entries below a directory that a rename checks
	glob    time.Duration // for the matching of a glob of SITE LOCKS. The worst globs take 30 ms for a name
	search  time.Duration // for the search of RNFR for locks of programs on the host
	changes time.Duration // for which the rename of a directory waits for changes of protected files that are under way
}

// longestWait bounds the wait for a data connection.
const longestWait = 20 * time.Second

// New makes a Server. It does not own the tree and the table.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		tree: o.Tree, nothing: afero.NewReadOnlyFs(afero.NewMemMapFs()), table: o.Table, jobs: o.Jobs, clock: o.Clock, directories: o.Directories,
		hostDirectories: o.HostDirectories, log: o.Log, tls: o.TLS, sessionReuse: o.SessionReuse, events: o.Events,
		bounds:   bounds{locks: 10_000, ordered: 10_000, piece: 2_000, below: 4_000, glob: 2 * time.Second, search: 10 * time.Second, changes: 2 * time.Second},
		rateOver: time.Minute, catchUp: 20 * time.Millisecond,
		logins: Logins{o.Guessing, o.Events}, digests: newDigests(),
		context: ctx, cancel: cancel,
	}
	s.ports = control.NewPorts(control.PortOptions{
		Range:   func() (first, last uint16) { r := s.settings.Load().FTP.PassivePorts; return r.First, r.Last },
		Timeout: s.connectWithin,
	})
	s.SetSettings(o.Settings)
	s.watching.Go(s.watch)
	return s
}

// SetSettings replaces the settings, for each session from its next command on. Sessions that are logged in keep the rights of their
// accounts. The wait for active data connections stays as it was at the start.
func (s *Server) SetSettings(settings Settings) { s.settings.Store(&settings) }

// connectWithin returns the longest wait for a data connection: FTP.DataTimeout, and at most longestWait.
func (s *Server) connectWithin() time.Duration {
	if timeout := s.settings.Load().FTP.DataTimeout.Duration; timeout > 0 {
		return min(timeout, longestWait)
	}
	return longestWait
}

// Control returns the server of the control connections, with the options that come from the driver. Call it once.
func (s *Server) Control(o control.Options) *control.Server {
	o.NewHandler = s.newClient
	o.Policy = func() control.Policy {
		settings := s.settings.Load()
		return control.Policy{TLSRequired: settings.TLS.Mode == config.TLSRequired, Active: settings.FTP.Active}
	}
	o.TLS, o.SessionReuse, o.Ports, o.Logger = s.tls, s.sessionReuse, s.ports, s.log
	// STOR STAGED: a file is published by one rename when its upload is complete, so a client need not upload to another name first.
	o.Features = []string{"SITE LOCK", "SITE LOCK DISCONNECT", "SITE LOCK FACTS " + factNames, "SITE LOCK NOTE", "SITE LOCKS", "SITE WAIT", "STOR STAGED"}
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
)

// GetSettings implements ftpserver.MainDriver. Control checks the addresses of data connections.
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

// ClientDisconnected implements ftpserver.MainDriver. Control has called Ended before.
func (s *Server) ClientDisconnected(ftpserver.ClientContext) {}

var errNoTLS = errors.New("TLS is not configured")

// GetTLSConfig implements ftpserver.MainDriver. The library calls it for data connections, and does no handshake: transfers replace its
// tls.Conn by their own.
func (s *Server) GetTLSConfig() (*tls.Config, error) {
	if s.tls == nil {
		return nil, errNoTLS
	}
	return s.tls, nil
}

// WrapPassiveListener implements ftpserver.MainDriverExtensionPassiveWrapper.
func (s *Server) WrapPassiveListener(l net.Listener) (net.Listener, error) { return s.ports.Wrap(l) }

// publicAddress returns the address for a reply to PASV.
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

// Close ends the goroutines of the server. Call it when the listeners are closed and no control connection is left: those call the functions
// of Command.Lost and Command.Unconfirmed before they end.
func (s *Server) Close() {
	s.cancel()
	s.watching.Wait()
}

// Sweep removes the files of ended locks that were moved aside more than LeftoverMaxAge ago.
func (s *Server) Sweep(context.Context) error {
	if age := s.settings.Load().Locks.LeftoverMaxAge.Duration; age > 0 {
		return s.tree.SweepLeftovers(s.clock.Now().Wall.Add(-age))
	}
	return nil
}
