package main

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

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// server is everything that runs in the process.
type server struct {
	options serveOptions
	log     *slog.Logger
	logTo   io.Writer
	clock   lock.Clock

	watched   *watched
	tls       *certificate // nil: no TLS
	admin     *admin
	ready     *readiness
	public    *publicAddress
	passwords *config.Verifier
	plain     string // the password of the built-in account, "" if there is none

	service atomic.Pointer[service] // what clients are served with; nil: nobody is served

	background sync.WaitGroup
	context    context.Context // of what runs in the background
	cancel     context.CancelFunc
	failed     chan error // what ended one of them before its time

	mu     sync.Mutex // held over a reload
	config *config.Config
}

// newServer starts a server. What it has started when something fails is stopped again.
func newServer(ctx context.Context, options serveOptions, logTo io.Writer) (_ *server, err error) {
	log := slog.New(options.LogFormat.handler(logTo, options.LogLevel))
	c, err := options.load()
	if err != nil {
		return nil, err
	}
	if c.Etcd.On() {
		return nil, usageError{errors.New("etcd.endpoints: this version cannot keep locks in etcd yet")}
	}
	clock, err := newClock()
	if err != nil {
		return nil, err
	}
	s := &server{
		options: options, log: log, logTo: logTo, clock: clock, failed: make(chan error, 8), config: c,
		passwords: config.NewVerifier(runtime.NumCPU()), public: newPublicAddress(log),
	}
	s.context, s.cancel = context.WithCancel(context.Background())
	s.ready = &readiness{check: s.canGrant, group: &s.background}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
			if s.watched != nil {
				err = errors.Join(err, s.watched.unmake())
			}
		}
	}()
	for _, w := range c.Warnings {
		log.Warn("configuration", "warning", w.Error())
	}
	return s, s.start(ctx)
}

// start begins to serve. What can fail without a trace comes first: the certificate, the addresses, whether the state directory is
// free, what events are told to.
func (s *server) start(ctx context.Context) (err error) {
	if s.tls, err = openCertificate(s.config); err != nil {
		return err
	}
	ports, err := s.openPorts(ctx)
	if err != nil {
		return err
	}
	v := &service{server: s, ports: ports}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.close())
		}
	}()
	if err := journal.InUse(s.config.State); err != nil {
		return fmt.Errorf("%s: %w", s.config.State, err)
	}
	if s.watched, err = s.watch(ctx); err != nil {
		return err
	}
	if err := makeState(s.config.State); err != nil {
		return err
	}
	if err := v.open(ctx, v.openJournal); err != nil {
		return err
	}
	if s.config, s.plain, err = s.withAccount(s.config); err != nil { // only now is the state directory ours
		return err
	}
	if s.admin, err = listenAdmin(s.config.State, s.handler()); err != nil {
		return err
	}
	s.public.use(ctx, s.config.FTP.PublicAddress)
	v.serve()
	s.run("looking up ftp.public_address", s.public.run)
	s.run("telling the service manager", s.watchdog)
	s.run("control socket", func(context.Context) error { return s.admin.serve() })
	s.run("http.listen", s.watched.run)
	s.run("the chart of the page", s.watched.sample)
	return nil
}

// run runs f in the background until it returns. An error before its time ends the server.
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

// of asks the service for something; the zero value if nobody is served.
func of[T any](s *server, ask func(*service) T) (answer T) {
	if v := s.service.Load(); v != nil {
		answer = ask(v)
	}
	return answer
}

// canGrant returns nil if a lock can be granted. It may take long.
func (s *server) canGrant() error {
	v, err := s.serving()
	if err != nil {
		return err
	}
	return v.store.Ready()
}

// serving returns what clients are served with, or says why nobody is.
func (s *server) serving() (*service, error) {
	if v := s.service.Load(); v != nil {
		return v, nil
	}
	return nil, errors.New("the server starts")
}

// withAccount adds the built-in account to a configuration that has none, and returns that one's password.
func (s *server) withAccount(c *config.Config) (_ *config.Config, plain string, err error) {
	if len(c.Accounts) > 0 {
		return c, "", nil
	}
	account, plain, generated, err := config.BuiltinAccount(c.State, os.Getenv)
	if err != nil {
		return nil, "", err
	}
	if generated {
		s.log.Info("made a password", "account", account.Name, "file", filepath.Join(c.State, "password"))
	}
	c.Accounts = []config.Account{account}
	return c, plain, nil
}

// makeState makes the state directory for its owner alone; one that exists keeps its mode, and is tried out before the served
// tree is made. The directories above it are ordinary ones: the served tree may lie in them.
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
