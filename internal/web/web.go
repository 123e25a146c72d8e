// Package web shows what the server does to people with a browser, and to programs that watch it: a page, /metrics, /healthz
// and /readyz.
//
// Its types: a [Source] is what the page needs of the server; a [Server] answers HTTP.
//
// Guarantees: nobody breaks a lock or ends a session without having logged in as an account with admin, on loopback too.
// Requests from pages of other sites are refused, and so are host names that are not the server's, so that no foreign page
// reads this one by a name of its own (DNS rebinding). Where a login is needed, nothing but /healthz, /readyz and the login
// itself is answered without one. Names of locks and files are bytes; they are shown escaped, whatever is in them.
//
// Caveats: a page is as old as half a second, and older if a look at the server takes more than a tenth of that. A log-in to the
// page ends with the server.
//
// Start reading at [Server.Handler].
package web

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/status"
)

// Account is who logged in to the page. A log-in ends when any of it changes.
type Account struct {
	Name  string
	Looks bool   // may see the page: its home is the whole tree, or it is an administrator
	Admin bool   // may break locks and end sessions
	Proof string // changes with the password, and with the networks that the account may come from
}

// ErrLogin is the error of a log-in with a wrong name or password.
var ErrLogin = errors.New("login incorrect")

// Fact is a key of a lock's rule and its value.
type Fact struct{ Key, Value string }

// Source is what the page needs of the server. Its methods are for use by several goroutines.
type Source interface {
	Locks() []status.Lock       // sorted by name; the page may change what it gets
	Count() (held, waiting int) // how many locks are held, and clients in a queue; it costs the same whatever is held
	Waiting(name string) []status.Waiter
	// History returns the last events of a lock, the newest first, at most so many. It may wait for the disk or for etcd.
	History(ctx context.Context, name string, most int) ([]status.Event, error)
	// Rule returns the keys of the rule that makes a name a lock; none: the name is no lock.
	Rule(name string) []Fact
	Sessions() []status.Session
	Transfers() []status.Transfer
	RefusedJobs() []status.RefusedJob
	// Break ends the hold with the token, on behalf of an account. An error says why it could not.
	Break(ctx context.Context, name string, token uint64, by, reason string) error
	// Kick ends a session. An error says why it could not.
	Kick(session, by, reason string) error
	// LogIn checks a password as FTP does, with its delays. The error matches ErrLogin, or says why nobody can log in now.
	LogIn(ctx context.Context, user, password string, from netip.Addr) (Account, error)
	// Account returns the account of that name as it is configured now; false: there is none.
	Account(name string) (Account, bool)
	// State says what this server is among several, such as "standby: NAME is active"; "": it is the only one.
	State() string
	// Valid returns nil if Locks are those that are held, else why another server may have granted them again.
	Valid() error
	// Ready returns nil if a lock can be granted now. It does not wait for long, whatever the disk does.
	Ready(ctx context.Context) error
}

// Options are what a Server is made of.
type Options struct {
	Source  Source
	Metrics http.Handler
	// Login says that nothing is shown to those who have not logged in: for addresses that are not loopback.
	Login bool
	// TLS says that browsers come by TLS.
	TLS bool
	// Host reports whether a host name is the server's. Names of loopback and IP addresses are always taken.
	Host    func(name string) bool
	Version string
}

// Server answers the requests.
type Server struct {
	o     Options
	seed  [32]byte // of what ends with the server
	rooms visitors
	past  past
	board board

	streams chan struct{} // has one message for each page that is told of changes
	opening chan struct{} // has one message while another page must not be opened
	reading chan struct{} // has one message while another history must not be read
}

// New makes a Server. Hand its Sink the events, and call Run.
func New(o Options) *Server {
	s := &Server{o: o, streams: make(chan struct{}, mostOpen), opening: make(chan struct{}, 1), reading: make(chan struct{}, 1)}
	s.board.source, s.board.past, s.board.views, s.board.next = o.Source, &s.past, make(map[view]*shown), make(chan struct{})
	_, _ = io.ReadFull(rand.Reader, s.seed[:]) // crypto/rand never fails
	return s
}

// Sink remembers the last events, and tells open pages that something has changed.
func (s *Server) Sink(batch []event.Event) {
	s.past.add(batch)
	s.board.notify()
}

// Run keeps open pages up to date, and takes the samples of the chart, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	tick, look := time.NewTicker(sampleEvery), time.NewTicker(refresh)
	defer tick.Stop()
	defer look.Stop()
	for {
		select {
		case <-look.C:
			s.board.tick()
		case <-tick.C:
			s.sample(time.Now())
		case <-ctx.Done():
			return nil
		}
	}
}

// mostOpen is how many pages may be open, and be told of changes, at a time.
const mostOpen = 100

// Handler answers all requests.
func (s *Server) Handler() http.Handler {
	open := http.NewServeMux() // for everybody who may connect
	open.HandleFunc("GET /healthz", s.health)
	open.HandleFunc("GET /readyz", s.ready)
	open.HandleFunc("GET /login", s.loginPage)
	open.HandleFunc("POST /login", s.login)
	open.Handle("GET /assets/", assetHandler())

	seen := http.NewServeMux() // for those who may look
	seen.HandleFunc("GET /{$}", s.page)
	seen.HandleFunc("GET /lock", s.lockPage)
	seen.HandleFunc("GET /events", s.eventPage)
	seen.HandleFunc("GET /stream", s.stream)
	seen.HandleFunc("GET /chart.json", s.chart)
	seen.HandleFunc("POST /logout", s.logout)
	seen.HandleFunc("GET /break", s.admins(s.breakPage))
	seen.HandleFunc("POST /break", s.admins(s.breakLock))
	seen.HandleFunc("GET /kick", s.admins(s.kickPage))
	seen.HandleFunc("POST /kick", s.admins(s.kick))
	open.Handle("/", s.lookers(seen))
	if s.o.Metrics != nil {
		open.Handle("GET /metrics", s.scrapers(s.o.Metrics))
	}
	return s.guard(open)
}

// health says that the process serves, and what it is among several servers.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if state := s.o.Source.State(); state != "" {
		plain(w, http.StatusOK, "ok, "+state)
		return
	}
	plain(w, http.StatusOK, "ok")
}

// ready says whether a lock can be granted.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if err := s.o.Source.Ready(r.Context()); err != nil {
		plain(w, http.StatusServiceUnavailable, "no lock can be granted: "+err.Error())
		return
	}
	plain(w, http.StatusOK, "ready")
}

// plain answers with a line of text.
func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // the client is gone
}
