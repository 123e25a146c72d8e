// Package web serves the page of the operator, and /metrics, /healthz and /readyz for programs.
//
// Its types: a [Source] provides the data of the server; a [Server] answers HTTP requests.
//
// Guarantees: only an account with admin that has logged in breaks a lock or ends a session, on loopback too. The server refuses requests from pages of
// other sites, and host names that are not its own, so that no other page reads this one by a name of its own (DNS rebinding). If a login is
// needed, only /healthz, /readyz, the login and its assets are answered without one. The page escapes the bytes of names.
//
// Caveats: the data of a page are half a second old, or older if an update takes more than a tenth of that. Without an event, a page shows sessions
// and transfers up to five seconds late. A login ends with the server.
//
// Start reading at [Server.Handler].
package web

import (
	"context"
	"html/template"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/status"
)

// Account is an account that has logged in to the page. A login ends when a field of its account changes.
type Account struct {
	Name        string
	CanView     bool   // may see the page: its home is the whole tree, or it has admin
	Admin       bool   // may break locks and end sessions
	Credentials string // changes with the password, and with the networks that the account may come from
}

// Fact is a key of a lock's rule and its value.
type Fact struct{ Key, Value string }

// Source provides the data of the server. Several goroutines may call its methods.
type Source interface {
	Locks() []status.Lock       // sorted by name; the caller may change them
	Count() (held, waiting int) // held locks and waiting clients; its cost does not depend on their number
	Waiting(name string) []status.Waiter
	// History returns at most so many events of a lock, the newest first. It may wait for the disk or for etcd.
	History(ctx context.Context, name string, most int) ([]status.Event, error)
	// Rule returns the keys of the rule that makes a name a lock; none: the name is no lock.
	Rule(name string) []Fact
	Sessions() []status.Session
	Transfers() []status.Transfer
	RefusedJobs() []status.RefusedJob
	// Break ends the hold with the token for an account. Its error has the reason why not.
	Break(ctx context.Context, name string, token uint64, by, reason string) error
	// Kick ends a session. Its error has the reason why not.
	Kick(session, by, reason string) error
	// LogIn checks a password like FTP, with the same delays. Its error matches config.ErrLogin, or has the reason why no account can log in now.
	LogIn(ctx context.Context, user, password string, from netip.Addr) (Account, error)
	// Account returns the account with a name as it is configured now; false: there is none.
	Account(name string) (Account, bool)
	// State returns the part of this server in a cluster, such as "standby: NAME is active"; "": there is no cluster.
	State() string
	// Valid returns nil if Locks are held, or the reason why another server may have granted them again.
	Valid() error
	// Ready returns nil if a lock can be granted now. It returns soon, even if the disk hangs.
	Ready(ctx context.Context) error
}

// Options are the settings of a Server.
type Options struct {
	Source  Source
	Metrics http.Handler
	// Login requires a login for all pages: for addresses other than loopback.
	Login bool
	// TLS reports that browsers connect by TLS.
	TLS bool
	// Host reports whether a host name is the server's. Names of loopback and IP addresses are always accepted.
	Host    func(name string) bool
	Version string
}

// Server answers HTTP requests.
type Server struct {
	o      Options
	visits visits
	past   past
	board  board

	streams     chan struct{} // has a message for each page that receives changes
	pageTurn    chan struct{} // has a message while another page must wait
	historyTurn chan struct{} // has a message while another history must wait
}

// New returns a Server. Pass the events to its Sink, and call Run.
func New(o Options) *Server {
	s := &Server{o: o, streams: make(chan struct{}, maxStreams), pageTurn: make(chan struct{}, 1), historyTurn: make(chan struct{}, 1)}
	s.board.source, s.board.past, s.board.rows, s.board.next = o.Source, &s.past, make(map[row]template.HTML), make(chan struct{})
	return s
}

// Sink keeps the last events, and updates open pages at the next tick.
func (s *Server) Sink(batch []event.Event) {
	s.past.add(batch)
	s.board.notify()
}

// Run updates open pages and takes the samples of the chart, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	sample, update := time.NewTicker(sampleEvery), time.NewTicker(refresh)
	defer sample.Stop()
	defer update.Stop()
	for {
		select {
		case <-update.C:
			s.board.tick()
		case <-sample.C:
			s.sample(time.Now())
		case <-ctx.Done():
			return nil
		}
	}
}

// maxStreams limits the pages that are open and receive changes.
const maxStreams = 100

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler {
	public := http.NewServeMux() // without a login
	public.HandleFunc("GET /healthz", s.health)
	public.HandleFunc("GET /readyz", s.ready)
	public.HandleFunc("GET /login", s.loginPage)
	public.HandleFunc("POST /login", s.login)
	public.HandleFunc("GET /assets/{name}", s.asset)

	viewing := http.NewServeMux() // with a login if Login is set
	viewing.HandleFunc("GET /{$}", s.page)
	viewing.HandleFunc("GET /lock", s.lockPage)
	viewing.HandleFunc("GET /events", s.eventPage)
	viewing.HandleFunc("GET /stream", s.stream)
	viewing.HandleFunc("GET /chart.json", s.chart)
	viewing.HandleFunc("POST /logout", s.logout)
	viewing.HandleFunc("GET /break", s.requireAdmin(s.breakPage))
	viewing.HandleFunc("POST /break", s.requireAdmin(s.breakLock))
	viewing.HandleFunc("GET /kick", s.requireAdmin(s.kickPage))
	viewing.HandleFunc("POST /kick", s.requireAdmin(s.kick))
	public.Handle("/", s.requireLogin(viewing))
	if s.o.Metrics != nil {
		public.Handle("GET /metrics", s.requireAccount(s.o.Metrics))
	}
	return s.guard(public)
}

// health reports that the process serves, and its part in a cluster.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if state := s.o.Source.State(); state != "" {
		plain(w, http.StatusOK, "ok, "+state)
		return
	}
	plain(w, http.StatusOK, "ok")
}

// ready reports whether a lock can be granted.
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
