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
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/guessing"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// newServer starts a server. If a part fails, it stops the other ones. If ctx ends before, the server is nil, and so is the error.
func newServer(ctx context.Context, options Options, logTo io.Writer, open func(etcd.Options) cluster) (started *server, err error) {
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
	s.admin.server = s
	s.context, s.cancel = context.WithCancel(context.Background())
	s.guessing = guessing.New(s.context, log, guessing.FirstDelay)
	s.ready = &readiness{check: s.canGrant}
	defer func() {
		if err != nil {
			if errors.Is(err, ctx.Err()) {
				started, err = nil, nil
			}
			err = errors.Join(err, s.leave(endOrderly))
			if s.sinks != nil {
				err = errors.Join(err, s.sinks.removeNewXferlog())
			}
		}
	}()
	s.logWarnings(c)
	if c.Etcd.On() {
		return s, s.startStandby(ctx, open)
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

// prepare does the steps whose failure leaves no trace: it reads the certificate, opens the addresses, checks that the state directory and
// the root are free, and opens the sinks of events.
func (s *server) prepare(ctx context.Context) (ports []port, err error) {
	if s.tls, err = openCertificate(s.config); err != nil {
		return nil, err
	}
	if ports, err = s.openPorts(ctx); err != nil {
		return nil, err
	}
	if err = s.checkUnused(); err == nil {
		s.sinks, err = s.openSinks(ctx)
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
	if err := makeStateDir(s.config.State); err != nil {
		return err
	}
	if err := v.open(ctx); err != nil {
		return err
	}
	if err := s.openAdmin(); err != nil { // the log holds the state directory
		return err
	}
	s.public.setName(ctx, s.config.FTP.PublicAddress)
	v.runLog(ctx)
	v.serve()
	s.serveAdmins()
	return nil
}

// startStandby begins to stand by, as one of several servers: it answers administrators, and serves clients at its turn. It
// fails if the configuration is wrong or an address is in use. It waits for a missing file system, as it waits for etcd.
func (s *server) startStandby(ctx context.Context, open func(etcd.Options) cluster) error {
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
	shared := readiness{check: func() error { return checkShared(s.config) }}
	if err := shared.await(ctx); errors.Is(err, errOtherPrefix) { // it waits for a file system that is missing, read-only or hangs
		return err
	}
	ports, err := s.prepare(ctx)
	if err == nil {
		err = closePorts(ports)
	}
	if err != nil {
		return err
	}
	if err := makeStateDir(s.config.State); err != nil {
		return err
	}
	if s.reservedDir, options.After, err = journal.ReserveDir(s.config.State, s.clock, s.clock.BootID()); err != nil {
		return err
	}
	if err := s.openAdmin(); err != nil {
		return err
	}
	s.public.setName(ctx, s.config.FTP.PublicAddress)
	s.election = newElection(s)
	options.CanServe = s.election.couldServe
	s.election.cluster = open(options)
	s.election.checkReadiness(ctx)
	s.serveAdmins()
	s.run("checking whether this server could serve", s.election.watchReadiness)
	s.run("publishing the state", s.election.watch)
	s.run("watching the space of etcd", s.election.watchSpace)
	s.run("cluster", s.election.run)
	return nil
}

// openAdmin opens the other parts of the state directory: the password of the built-in account and the control socket.
func (s *server) openAdmin() (err error) {
	if s.config, s.builtinPassword, err = s.withAccount(s.config); err != nil {
		return err
	}
	s.logins.Store(s.config)
	return s.admin.listen(s.config.State)
}

// serveAdmins starts the background parts that serve administrators.
func (s *server) serveAdmins() {
	s.run("looking up ftp.public_address", s.public.run)
	s.run("checking certificates", s.watchExpiry)
	s.run("control socket", s.admin.serve)
	if s.sinks.page != nil {
		s.run("http.listen", s.sinks.run)
		s.run("the chart of the page", s.sinks.page.Run)
	}
}

// withAccount adds the built-in account to a configuration that has none, and returns that one's password.
func (s *server) withAccount(c *config.Config) (_ *config.Config, password string, err error) {
	if len(c.Accounts) > 0 {
		return c, "", nil
	}
	if err := checkAccounts(c); err != nil {
		return nil, "", err
	}
	account, password, generated, err := config.BuiltinAccount(c.State, os.Getenv)
	if err != nil {
		return nil, "", err
	}
	if generated {
		s.log.Info("made a password", "account", account.Name, "file", filepath.Join(c.State, "password"))
	}
	if before := s.config.Accounts; password == s.builtinPassword && len(before) == 1 && before[0].Name == account.Name {
		account = before[0] // its hash stays the same, so sessions of the page stay logged in
	}
	c.Accounts = []config.Account{account}
	return c, password, nil
}

// makeStateDir makes the state directory with mode 0700. An existing one keeps its mode, and makeStateDir checks that it can be written. The directories
// above it have an ordinary mode: they may contain the served tree.
func makeStateDir(dir string) error {
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
