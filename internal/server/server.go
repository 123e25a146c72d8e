package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// clock is the clock of a server.
type clock interface {
	lock.Clock
	BootID() string // the id of this boot of the machine; "" if the system has none
}

// server has all parts of the process.
type server struct {
	options Options
	log     *slog.Logger
	logTo   io.Writer
	clock   clock
	started time.Time

	watched   *watched
	tls       *certificate // nil: no TLS
	admin     *admin
	ready     *readiness
	public    *publicAddress
	passwords *config.Verifier
	plain     string // the password of the built-in account; "" without that account

	service  atomic.Pointer[service] // the parts that clients use; nil: no client is served
	election *election               // nil: the server is a single one
	claim    io.Closer               // holds the state directory of a server without a journal

	background sync.WaitGroup
	context    context.Context // of the background
	cancel     context.CancelFunc
	failed     chan error // gets the error of a part that fails

	mu     sync.Mutex // held over a reload
	config *config.Config

	logins atomic.Pointer[config.Config] // the current accounts, readable during a reload
}

// newServer starts a server. If a part fails, it stops the other ones.
func newServer(ctx context.Context, options Options, logTo io.Writer, reach reachCluster) (_ *server, err error) {
	log := slog.New(options.LogFormat.handler(logTo, options.LogLevel))
	c, err := options.Load()
	if err != nil {
		return nil, err
	}
	clock, err := NewClock()
	if err != nil {
		return nil, err
	}
	s := &server{
		options: options, log: log, logTo: logTo, clock: clock, started: time.Now(), failed: make(chan error, 8), config: c,
		passwords: config.NewVerifier(runtime.NumCPU()), public: newPublicAddress(log),
	}
	s.context, s.cancel = context.WithCancel(context.Background())
	s.ready = &readiness{check: s.canGrant, group: &s.background}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.leave(orderly()))
			if s.watched != nil {
				err = errors.Join(err, s.watched.unmake())
			}
		}
	}()
	s.logWarnings(c)
	if c.Etcd.On() {
		return s, s.startStandby(ctx, reach)
	}
	return s, s.start(ctx)
}

// logWarnings logs the warnings of a configuration, and returns them.
func (s *server) logWarnings(c *config.Config) (warnings []string) {
	for _, w := range c.Warnings {
		s.log.Warn("configuration", "warning", w.Error())
		warnings = append(warnings, w.Error())
	}
	return warnings
}

// prepare does the steps whose failure leaves no trace: it reads the certificate, opens the addresses, checks that the state directory is
// free, and opens the sinks of events.
func (s *server) prepare(ctx context.Context) (ports []port, err error) {
	if s.tls, err = openCertificate(s.config); err != nil {
		return nil, err
	}
	if ports, err = s.openPorts(ctx); err != nil {
		return nil, err
	}
	if err = journal.InUse(s.config.State); err != nil {
		err = fmt.Errorf("%s: %w", s.config.State, err)
	} else {
		s.watched, err = s.watch(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, closePorts(ports))
	}
	return ports, nil
}

// start begins to serve, as a single server.
func (s *server) start(ctx context.Context) (err error) {
	v := &service{server: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close(false))
		}
	}()
	if v.ports, err = s.prepare(ctx); err != nil {
		return err
	}
	if err := makeState(s.config.State); err != nil {
		return err
	}
	if err := v.open(ctx, v.openJournal); err != nil {
		return err
	}
	if err := s.openAdmin(); err != nil { // the log holds the state directory
		return err
	}
	s.public.use(ctx, s.config.FTP.PublicAddress)
	v.keepLog(ctx, v.log)
	v.serve()
	s.answer()
	return nil
}

// startStandby begins to stand by, as one of several servers: it answers administrators, and serves clients at its turn. It
// fails if the server could not serve: it would be no standby.
func (s *server) startStandby(ctx context.Context, reach reachCluster) error {
	if err := checkAccounts(s.config); err != nil {
		return err
	}
	options, err := EtcdOptions(s.config, s.clock, s.log)
	if err != nil {
		return err
	}
	if options.Self, err = s.self(); err != nil {
		return err
	}
	if err := checkShared(s.config); err != nil {
		return err
	}
	ports, err := s.prepare(ctx)
	if err == nil {
		err = closePorts(ports)
	}
	if err != nil {
		return err
	}
	if err := makeState(s.config.State); err != nil {
		return err
	}
	if s.claim, options.After, err = journal.Claim(s.config.State, s.clock, s.clock.BootID()); err != nil {
		return err
	}
	if err := s.openAdmin(); err != nil {
		return err
	}
	s.public.use(ctx, s.config.FTP.PublicAddress)
	s.election = newElection(s, options, reach)
	s.answer()
	s.run("telling the state", s.election.watch)
	s.run("watching the space of etcd", s.election.watchSpace)
	s.run("cluster", s.election.run)
	return nil
}

// openAdmin opens the other parts of the state directory: the password of the built-in account and the control socket.
func (s *server) openAdmin() (err error) {
	if s.config, s.plain, err = s.withAccount(s.config); err != nil {
		return err
	}
	s.logins.Store(s.config)
	s.admin, err = listenAdmin(s.config.State, s.handler())
	return err
}

// answer starts the background parts that serve administrators.
func (s *server) answer() {
	s.run("looking up ftp.public_address", s.public.run)
	s.run("telling the service manager", s.watchdog)
	s.run("control socket", func(context.Context) error { return s.admin.serve() })
	s.run("http.listen", s.watched.run)
	s.run("the chart of the page", s.watched.sample)
}

// run runs f in the background until it returns. An error ends the server, unless it stops already.
func (s *server) run(what string, f func(context.Context) error) {
	s.background.Go(func() {
		if err := f(s.context); err != nil && s.context.Err() == nil {
			select {
			case s.failed <- fmt.Errorf("%s: %w", what, err):
			case <-s.context.Done():
			}
		}
	})
}

// of returns a value of the service, or the zero value if no client is served.
func of[T any](s *server, ask func(*service) T) (answer T) {
	if v := s.service.Load(); v != nil {
		answer = ask(v)
	}
	return answer
}

// canGrant returns nil if a lock can be granted. It may wait for the disk.
func (s *server) canGrant() error {
	v, err := s.serving()
	if err != nil {
		return err
	}
	return v.log.Ready()
}

// serving returns the service, or an error if no client is served.
func (s *server) serving() (*service, error) {
	if v := s.service.Load(); v != nil {
		return v, nil
	}
	if s.election != nil {
		return nil, errors.New(s.clusterState().String())
	}
	return nil, errors.New("the server starts")
}

// withAccount adds the built-in account to a configuration that has none, and returns that one's password.
func (s *server) withAccount(c *config.Config) (_ *config.Config, plain string, err error) {
	if len(c.Accounts) > 0 {
		return c, "", nil
	}
	if err := checkAccounts(c); err != nil {
		return nil, "", err
	}
	account, plain, generated, err := config.BuiltinAccount(c.State, os.Getenv)
	if err != nil {
		return nil, "", err
	}
	if generated {
		s.log.Info("made a password", "account", account.Name, "file", filepath.Join(c.State, "password"))
	}
	if before := s.config.Accounts; plain == s.plain && len(before) == 1 && before[0].Name == account.Name {
		account = before[0] // its hash stays the same, so sessions of the page stay logged in
	}
	c.Accounts = []config.Account{account}
	return c, plain, nil
}

// makeState makes the state directory with mode 0700. An existing one keeps its mode, and makeState checks that it can be written. The directories
// above it have an ordinary mode: they may contain the served tree.
func makeState(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	trial, err := os.CreateTemp(dir, ".trial-*")
	if err != nil {
		return fmt.Errorf("the state directory cannot be written: %w", err)
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}
