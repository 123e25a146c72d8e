// Package driver is what FTP commands do: it turns verbs into changes of lock.Table and of
// the served tree.
//
// Its types: a [Server] is ftpserverlib's MainDriver and makes a session of each connection; an
// [Account] is who logged in; [Settings] are what a reload may change. Not exported: session
// decides what becomes of each command (control.Handler), client is what the
// commands of one login do (ftpserver.ClientDriver), transfer is one use of a data connection.
//
// What is promised: MKD and RMD of a lock's name are Acquire and Release of lock.Table and nothing else
// takes, moves, ages or removes a lock; an upload is published whole, by one rename, while its
// client is still there, or not at all; a file that a lock protects is changed by a session that speaks for an exclusive
// hold of it, in one step with that check; replies show paths as the client knows them, never the server's;
// a lock is given back on behalf of a session only when its transfers are over.
//
// What is not: a client that is killed and whose connections end further apart than Settings.HangUp is taken
// for one that finished, if its data connection ends first. Renaming a directory can give a directory in it the name of a
// lock; like every one that was not made by MKD it is the host's then.
//
// Start reading at session.Command and commands.go.
package driver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ftpserver "github.com/fclairamb/ftpserverlib"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

// Options are what a Server is made of. All but TLS and Log are needed.
type Options struct {
	Tree        *files.Tree
	Table       *lock.Table
	Clock       lock.Clock
	NotesDir    string      // where the notes of lock holders are kept
	Directories bool        // each lock has a directory in the tree
	TLS         *tls.Config // nil: no TLS
	Log         *slog.Logger
	Settings    Settings
	// Publications is told of each change of a protected file; nil: the log only.
	Publications lock.Publications
	// Command is called for each command that comes; nil: nothing is. It must be quick.
	Command func()
}

// Settings are what [Server.SetSettings] changes while sessions go on.
type Settings struct {
	Accounts    Accounts
	FirstPort   uint16 // of the passive ports; 0: the kernel's choice
	LastPort    uint16
	Active      bool // PORT and EPRT
	TLSRequired bool
	DataTimeout time.Duration
	HangUp      time.Duration // how long an upload waits for the end of the control connection, if that is more than 2 ms; see hangUps
	StatusFile  string        // a path as accounts see it; "": none
	// PublicAddress finds the IPv4 address that PASV tells clients; nil, or the zero Addr: the one they
	// connected to. Clients on the server's own machine are always told that.
	PublicAddress func(context.Context) netip.Addr
}

// Server is the part of ftplockd that ftpserverlib drives.
type Server struct {
	tree        *files.Tree
	table       *lock.Table
	clock       lock.Clock
	notes       *notes
	directories bool
	tls         *tls.Config
	log         *slog.Logger
	delays      delays
	running     func() (int, bool) // see hangUps; nil: nobody looks
	lookout     lookout
	owners      owners
	maxLooks    int // how many names a pattern in a listing may look at
	settings    atomic.Pointer[Settings]
	dataTLS     *tls.Config  // tls, for data connections
	listening   atomic.Int32 // passive ports that are open
	nextPort    atomic.Uint32
	hurries     chan struct{} // see haste
	removals    atomic.Uint64 // how many changes clients have made that can take a directory away; counted before they are over
	commands    map[string]command
	came        func()          // Options.Command
	context     context.Context // of what sessions do; ends with Close
	cancel      context.CancelFunc

	publications lock.Publications
	stages       *stages
	restarted    sync.Map // lock.Token: holds whose holder was told that a restart dropped what it had prepared
	// layout keeps names meaning what they mean: it is held, disk access included, shared by changes of protected
	// files from the look at their names on and by what reads names, exclusively by the renaming of
	// directories and by the renames of one publication. Nobody waits for the table with it held.
	layout sync.RWMutex

	mu       sync.Mutex
	sessions map[*session]struct{}
	empty    chan struct{} // closed when there is no session; made anew by the first one
}

// delays are how long the server waits for this and that. They are fields for the tests' sake.
type delays struct {
	// hangUp is how long after the data connection of an upload the control connection may end, for the client to
	// be taken for a killed one. Its kernel closes both microseconds apart, on Linux the one that was opened
	// later first (p99 33 us on an idle machine; on an overloaded one 5 of 6,400 took longer than 2 ms); a client that
	// finished waits for its 226.
	hangUp time.Duration
	// wrongPassword is how long the answer to a wrong password takes, more each time.
	wrongPassword time.Duration
	// dataConnection is how long a data connection is waited for.
	dataConnection time.Duration
	// lastWord is how long a client may take to end a data connection that has ended for it, and has the 226 then: as long as Linux may take to
	// acknowledge that end, for which vsftpd waits.
	lastWord time.Duration
}

var usualDelays = delays{
	hangUp: 2 * time.Millisecond, wrongPassword: 300 * time.Millisecond, dataConnection: 20 * time.Second, lastWord: 40 * time.Millisecond,
}

var (
	_ ftpserver.MainDriver                          = (*Server)(nil)
	_ ftpserver.ClientDriverExtensionRemoveDir      = (*client)(nil)
	_ ftpserver.ClientDriverExtensionAvailableSpace = (*client)(nil)
)

var (
	errNotLoggedIn = errors.New("not logged in")
	errNoTLS       = errors.New("TLS is not configured")
)

// New makes a Server. It does not own the tree and the table.
func New(o Options) (*Server, error) {
	n, err := openNotes(o.NotesDir)
	if err != nil {
		return nil, err
	}
	if o.Command == nil {
		o.Command = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	empty := make(chan struct{})
	close(empty)
	s := &Server{
		tree: o.Tree, table: o.Table, clock: o.Clock, notes: n, directories: o.Directories, tls: o.TLS, log: o.Log,
		dataTLS: withoutTickets(o.TLS), hurries: make(chan struct{}, 1), commands: allCommands(),
		delays: usualDelays, running: runningTasks, maxLooks: usualLooks, context: ctx, cancel: cancel,
		sessions: make(map[*session]struct{}), empty: empty,
		publications: o.Publications, stages: newStages(), came: o.Command,
	}
	s.owners.search, s.owners.sessions, s.owners.stop = searchOwners, s.neighbours, make(chan struct{})
	s.SetSettings(o.Settings)
	if err := s.tellRedone(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// SetSettings takes other settings; sessions see them from their next command on. An account that is
// logged in keeps what it had.
func (s *Server) SetSettings(settings Settings) { s.settings.Store(&settings) }

// Serve runs ftpserverlib on the listener, until that is closed. It returns nil then.
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

// GetSettings implements ftpserver.MainDriver. Most of what could be set here is done ahead of the
// library, by control and by session.
func (l *library) GetSettings() (*ftpserver.Settings, error) {
	return &ftpserver.Settings{
		Listener:    l.listener,
		IdleTimeout: -1, // control counts idle time
	}, nil
}

// GetSettings implements ftpserver.MainDriver; Serve uses library's.
func (s *Server) GetSettings() (*ftpserver.Settings, error) { return &ftpserver.Settings{}, nil }

// ClientConnected implements ftpserver.MainDriver with the text of the greeting.
func (s *Server) ClientConnected(ftpserver.ClientContext) (string, error) {
	return "ftplockd ready", nil
}

// ClientDisconnected implements ftpserver.MainDriver. Control told the session before.
func (s *Server) ClientDisconnected(ftpserver.ClientContext) {}

// GetTLSConfig implements ftpserver.MainDriver. The library asks for none: control does the handshakes.
func (s *Server) GetTLSConfig() (*tls.Config, error) { return nil, errNoTLS }

// withoutTickets is the configuration for data connections. There are no session
// tickets on these: an uploader (Net::FTP) that only writes would leave them unread, and closing a socket with
// something unread resets the connection, so that the end of its upload is lost.
func withoutTickets(config *tls.Config) *tls.Config {
	if config == nil {
		return nil
	}
	config = config.Clone()
	config.SessionTicketsDisabled = true
	return config
}

// publicAddress is the one that a reply to PASV names to a client that came to the local one.
func (s *Server) publicAddress(local netip.Addr) netip.Addr {
	find := s.settings.Load().PublicAddress
	if find == nil || local.IsLoopback() {
		return local
	}
	if public := find(s.context).Unmap(); public.Is4() {
		return public
	}
	return local
}

// NewSession is control.Options.NewHandler.
func (s *Server) NewSession(c *control.Conn) control.Handler {
	session := &session{server: s, conn: c, log: s.log.With("session", c.ID(), "address", address(c.RemoteAddr()))}
	session.reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) == 0 {
		s.empty = make(chan struct{})
	}
	s.sessions[session] = struct{}{}
	return session
}

// forget takes a session that is over out of the books.
func (s *Server) forget(session *session) {
	if e, ok := clientEnds(session.conn); ok {
		s.owners.forget(e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session)
	if len(s.sessions) == 0 {
		close(s.empty)
	}
}

// neighbours returns the clients' ends of the sessions whose clients are on this machine.
func (s *Server) neighbours() (all []ends) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for session := range s.sessions {
		if e, ok := clientEnds(session.conn); ok {
			all = append(all, e)
		}
	}
	return all
}

// Wait returns when no session is left, or ctx ends.
func (s *Server) Wait(ctx context.Context) error {
	s.mu.Lock()
	empty := s.empty
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends what sessions are doing and gives back what the server holds open. Call it when the listener
// is closed and Wait has returned.
func (s *Server) Close() error {
	s.cancel()
	s.owners.close()
	return errors.Join(s.closeStages(), s.notes.Close())
}

// Sweep removes the notes of holds that have ended, and drops what they prepared and did not publish.
func (s *Server) Sweep(context.Context) error {
	return errors.Join(s.sweepStages(), s.sweepNotes())
}

// Ended removes the notes of holds that have ended by themselves, and what they prepared: it keeps files open, and need not
// wait for Sweep.
func (s *Server) Ended(all []lock.Ended) {
	for _, e := range all {
		s.dropHold(e.Name, e.Hold.Token)
	}
}

// dropHold removes the notes of a hold that has ended, and what it prepared.
func (s *Server) dropHold(n lock.Name, token lock.Token) {
	if err := errors.Join(s.stages.drop(token), s.notes.drop(token)); err != nil {
		s.log.Warn("could not remove the notes of a lock", "name", string(n), "token", token, "err", err)
	}
}

func (s *Server) sweepNotes() error {
	return s.notes.sweep(func() map[lock.Token]bool {
		standing := make(map[lock.Token]bool)
		for _, status := range s.table.All() {
			for _, h := range status.Holds {
				standing[h.Token] = true
			}
		}
		return standing
	})
}

// leaving returns the holds of a name that may have notes or something prepared, for dropNotes; mostly none. What comes to have
// some while it ends is left to Sweep.
func (s *Server) leaving(n lock.Name) []lock.Hold {
	if !s.stages.any() && !s.notes.any() {
		return nil
	}
	status, _ := s.table.Get(n)
	return status.Holds
}

// dropNotes removes the notes of those holds that do not stand any more, and what they prepared.
func (s *Server) dropNotes(n lock.Name, holds []lock.Hold) {
	if len(holds) == 0 {
		return
	}
	now, _ := s.table.Get(n)
	for _, h := range holds {
		if slices.ContainsFunc(now.Holds, func(other lock.Hold) bool { return other.Token == h.Token }) {
			continue
		}
		s.dropHold(n, h.Token)
	}
}

// debug reports whether commands are logged.
func (s *Server) debug() bool { return s.log.Enabled(s.context, slog.LevelDebug) }

// sessionOf leads from the library's client to its session.
func sessionOf(cc ftpserver.ClientContext) (*session, bool) {
	c, ok := control.FromAddr(cc.RemoteAddr())
	if !ok {
		return nil, false
	}
	session, ok := c.Handler().(*session)
	return session, ok
}
