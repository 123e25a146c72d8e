package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/driver"
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/hostdir"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/reaper"
)

// drainTime is how long a server that stops lets transfers finish.
const drainTime = 20 * time.Second

// runServe runs the server until ctx ends or SIGINT or SIGTERM comes. A second signal ends the process at once.
func runServe(ctx context.Context, options serveOptions, stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	s, err := newServer(ctx, options, stderr)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, s.banner(isTerminal(stdout))); err != nil {
		return errors.Join(err, s.stop())
	}
	s.tellManager(daemon.SdNotifyReady)
	for {
		select {
		case <-hangups:
			if _, err := s.reload(context.WithoutCancel(ctx)); err != nil {
				s.watched.bus.Publish(event.Event{Kind: event.Reload, Reason: err.Error()})
			}
		case err := <-s.failed:
			if errors.Is(err, journal.ErrFailed) { // nothing that is done from now on can be promised
				return err
			}
			return errors.Join(err, s.stop())
		case <-ctx.Done():
			stop() // another signal ends the process
			return s.stop()
		}
	}
}

// server is everything that runs, in the order in which it was started.
type server struct {
	options serveOptions
	log     *slog.Logger
	logTo   io.Writer
	clock   lock.Clock

	tree    *files.Tree
	store   *journal.Store
	hostdir *hostdir.Store // nil without directories
	insides *driver.Insides
	table   *lock.Table
	driver  *driver.Server
	watched *watched
	tls     *certificate // nil: no TLS
	ports   []port       // the open addresses
	conns   *control.Server
	admin   *admin

	ready     *readiness
	public    *publicAddress
	passwords *config.Verifier
	plain     string // the password of the built-in account, "" if there is none

	background sync.WaitGroup // reaper, table, driver, admin
	cancel     context.CancelFunc
	failed     chan error // what ended one of them before its time

	mu     sync.Mutex // held over a reload
	config *config.Config
}

// port is an open address.
type port struct {
	net.Listener
	implicit *tls.Config // TLS from the start; nil: no
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
		options: options, log: log, logTo: logTo, clock: clock, failed: make(chan error, 8),
		passwords: config.NewVerifier(runtime.NumCPU()), public: newPublicAddress(log),
	}
	s.ready = &readiness{check: func() error { return s.store.Ready() }, group: &s.background}
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
	rules, err := lock.NewRules(rulesOf(c))
	if err != nil {
		return nil, err
	}
	s.config = c
	if err := s.openPorts(ctx); err != nil {
		return nil, err
	}
	if err := journal.InUse(c.State); err != nil { // before anything is written
		return nil, fmt.Errorf("%s: %w", c.State, err)
	}
	if s.watched, err = s.watch(ctx); err != nil {
		return nil, err
	}
	if err := s.openStores(ctx, rules); err != nil {
		return nil, err
	}
	if s.config, s.plain, err = s.withAccount(c); err != nil { // only now is the state directory ours
		return nil, err
	}
	s.openDriver()
	if err := s.listen(); err != nil {
		return nil, err
	}
	s.warnOfHomes(s.config)
	s.warnOfSecondNames(rules)
	s.public.use(ctx, s.config.FTP.PublicAddress)
	s.start()
	return s, nil
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

// openStores opens the served tree and the journal, and brings them into agreement.
func (s *server) openStores(ctx context.Context, rules *lock.Rules) (err error) {
	c := s.config
	if err := makeState(c.State); err != nil {
		return err
	}
	if s.tree, err = files.Open(c.Root, files.Options{
		State: filepath.Join(c.State, "uploads"), Mode: c.Files.Mode.FileMode, Durable: c.Files.Durable, Log: s.log,
	}); err != nil {
		return err
	}
	if err := s.makePrefixes(rules); err != nil {
		return err
	}
	if s.store, err = journal.Open(journal.Options{
		Dir: c.State, Clock: s.clock, Durable: c.Locks.Durable, Log: s.log,
		Synced:     s.watched.metrics.Synced,
		HistoryAge: time.Duration(c.Locks.HistoryDays) * 24 * time.Hour, HistorySize: c.Locks.HistorySize.Bytes,
	}); err != nil {
		return err
	}
	if s.insides, err = driver.OpenInsides(s.tree, filepath.Join(c.State, "inside"), s.log); err != nil {
		return err
	}
	var store lock.Store
	if c.Locks.Directories {
		s.hostdir, err = hostdir.Open(ctx, hostdir.Options{Inner: s.store, FS: s.tree, Clock: s.clock, Rules: rules, Log: s.log})
		store = s.hostdir
	} else {
		err = s.dismissHost(ctx)
		store = s.insides.Store(s.store)
	}
	if err != nil {
		return err
	}
	s.table, err = lock.NewTable(ctx, lock.Options{
		Store: store, Clock: s.clock, Rules: rules, Log: s.log, Observe: s.watched.observe, Generation: s.store.Generation(),
	})
	return err
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

// dismissHost ends the locks that programs on the host hold: without directories nobody could ever give them back. Their
// directories stay.
func (s *server) dismissHost(ctx context.Context) error {
	var errs []error
	for record, err := range s.store.All(ctx) {
		if err != nil {
			return err
		}
		if record.Holds[0].Host() {
			errs = append(errs, s.store.SetDirectory(record.Name, record.Revision, lock.DirectoryID{}))
			_, err = s.store.Commit(ctx, lock.Change{
				Name: record.Name, If: record.Revision, Cause: lock.CauseHostGone, By: lock.Owner{Account: lock.HostAccount},
			})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// warnOfSecondNames says where one file has two names, for which locks and what they protect are two.
func (s *server) warnOfSecondNames(rules *lock.Rules) {
	directories := []string{"/"}
	for _, p := range rules.Prefixes() {
		directories = append(directories, string(p))
	}
	for _, a := range s.config.Accounts {
		directories = append(directories, a.Home)
	}
	for _, found := range s.tree.SecondNames(directories) {
		s.log.Warn("one file has two names: locks and protection know each name alone", "where", found)
	}
}

// warnOfHomes names the accounts whose home is not there.
func (s *server) warnOfHomes(c *config.Config) {
	for _, a := range c.Accounts {
		if info, err := s.tree.Stat(a.Home); err != nil || !info.IsDir() {
			s.log.Warn("the home of an account is no directory of the served tree", "account", a.Name, "home", a.Home)
		}
	}
}

// makePrefixes makes the fixed parts of the rules' globs, so that the first MKD below /locks works. All of them, or none.
func (s *server) makePrefixes(rules *lock.Rules) (err error) {
	var made []string
	for _, p := range rules.Prefixes() {
		for i, c := range string(p) + "/" {
			if i == 0 || c != '/' {
				continue
			}
			dir := string(p)[:i]
			if err = s.tree.Mkdir(dir, 0o755); err == nil {
				made = append(made, dir)
			}
		}
		if info, statErr := s.tree.Stat(string(p)); statErr != nil || !info.IsDir() {
			for _, dir := range slices.Backward(made) {
				err = errors.Join(err, s.tree.RemoveDir(dir))
			}
			return fmt.Errorf("could not make the directory %s of a [[lock]] rule: %w", p, err)
		}
	}
	return nil
}

func (s *server) openDriver() {
	c := s.config
	o := driver.Options{
		Tree: s.tree, Table: s.table, Clock: s.clock, Insides: s.insides,
		Directories: c.Locks.Directories, Log: s.log, Settings: s.settings(c), Publications: s.store,
		Events: s.watched.bus,
	}
	if s.tls != nil {
		o.SessionReuse = s.config.TLS.SessionReuse == config.ReuseRequired
		o.TLS = s.tls.config()
	}
	s.driver = driver.New(o)
}

// openPorts reads the certificate and opens all addresses. That is done before anything is written: a start that fails
// here has changed nothing.
func (s *server) openPorts(ctx context.Context) error {
	c := s.config
	if c.TLS.Mode != config.TLSOff {
		pair, err := readPair(c.TLS.Certificate, c.TLS.Key)
		if err != nil {
			return err
		}
		s.tls = new(certificate)
		s.tls.Store(pair)
	}
	open := func(key string, addresses []string, implicit *tls.Config) error {
		for _, address := range addresses {
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			s.ports = append(s.ports, port{l, implicit})
		}
		return nil
	}
	if err := open("listen", c.Listen, nil); err != nil {
		return err
	}
	if s.tls == nil {
		return nil
	}
	return open("tls.implicit_listen", c.TLS.ImplicitListen, s.tls.config())
}

// listen takes over the open addresses, and opens the control socket.
func (s *server) listen() (err error) {
	if s.admin, err = listenAdmin(s.config.State, s.handler()); err != nil {
		return err
	}
	s.conns = s.driver.Control(control.Options{Limits: limits(s.config), UserTimeout: s.config.FTP.UserTimeout.Duration})
	for i, p := range s.ports {
		s.ports[i].Listener = s.conns.Listen(p.Listener, p.implicit)
	}
	return nil
}

// limits are those of the control connections.
func limits(c *config.Config) control.Limits {
	return control.Limits{
		MaxConnections: c.FTP.MaxConnections, MaxPerAddress: c.FTP.MaxConnectionsPerAddress,
		IdleTimeout: c.FTP.IdleTimeout.Duration, LoginTimeout: c.FTP.LoginTimeout.Duration,
	}
}

// start begins to serve.
func (s *server) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	run := func(what string, f func() error) {
		s.background.Go(func() {
			if err := f(); err != nil && ctx.Err() == nil {
				select {
				case s.failed <- fmt.Errorf("%s: %w", what, err):
				case <-ctx.Done():
				}
			}
		})
	}
	reap := reaper.Reaper{Table: s.table, Sweepers: []reaper.Sweeper{s.driver, s.store, s.tree}, Log: s.log}
	run("watching the served tree", func() error { return s.table.Run(ctx) })
	run("reaping", func() error { return reap.Run(ctx) })
	for _, p := range s.ports {
		run("serving", func() error { return s.driver.Serve(p) })
	}
	run("looking up ftp.public_address", func() error { return s.public.run(ctx) })
	run("journal", func() error { return s.store.Run(ctx) })
	run("telling the service manager", func() error { return s.watchdog(ctx) })
	run("control socket", func() error { return s.admin.serve() })
	run("http.listen", func() error { return s.watched.run(ctx) })
	run("the chart of the page", func() error { return s.watched.sample(ctx) })
}

// stop ends the server in one order: no new connections; sessions, those with a transfer when that is over or
// after drainTime; reaper and control socket; the journal and the tree last. It may be called at any point of the start.
func (s *server) stop() error {
	var errs []error
	if s.conns != nil {
		if s.cancel != nil {
			s.log.Info("stopping")
			s.tellManager(daemon.SdNotifyStopping)
		}
		errs = append(errs, s.conns.Shutdown(control.Reply{Code: 421, Text: "the server stops"}))
		errs = append(errs, s.drain())
	} else {
		for _, p := range s.ports {
			errs = append(errs, p.Close())
		}
	}
	if s.cancel != nil {
		s.cancel()
	}
	if s.admin != nil {
		errs = append(errs, s.admin.close())
	}
	if s.watched != nil {
		s.watched.stop()
	}
	s.background.Wait()
	if s.driver != nil {
		s.driver.Close()
	}
	if s.insides != nil {
		errs = append(errs, s.insides.Close())
	}
	if s.hostdir != nil {
		s.hostdir.Close()
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.tree != nil {
		errs = append(errs, s.tree.Close())
	}
	if s.watched != nil {
		errs = append(errs, s.watched.close())
	}
	return errors.Join(errs...)
}

// drain waits until the sessions are over, and ends those that take too long.
func (s *server) drain() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := s.conns.Wait(ctx); err == nil {
		return nil
	}
	for conn := range s.conns.Conns() {
		conn.Kick(control.Reply{Code: 421, Text: "the server stops"})
	}
	ctx, cancel = context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	return s.conns.Wait(ctx)
}

// reload takes over a changed configuration: all of it but the keys that need a restart, or nothing. All that can fail is done
// first. It returns the keys that have changed and need a restart.
func (s *server) reload(ctx context.Context) (ignored []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.options.load()
	if err != nil {
		return nil, err
	}
	ignored = next.KeepRestartKeys(s.config)
	next, plain, err := s.withAccount(next)
	if err != nil {
		return nil, err
	}
	rules, err := lock.NewRules(rulesOf(next))
	if err != nil {
		return nil, err
	}
	var pair *tls.Certificate
	if s.tls != nil {
		if pair, err = readPair(next.TLS.Certificate, next.TLS.Key); err != nil {
			return nil, err
		}
	}
	if err := checkHooks(next); err != nil {
		return nil, err
	}
	if err := s.makePrefixes(rules); err != nil {
		return nil, err
	}

	for _, key := range ignored {
		s.log.Warn("this change needs a restart; until then the old value holds", "key", key)
	}
	if s.tls != nil {
		s.tls.Store(pair)
	}
	if s.hostdir != nil {
		s.hostdir.SetRules(rules)
	}
	if err := s.table.SetRules(ctx, rules); err != nil {
		s.log.Error("the new rules hold, but were not recorded for all locks that are held: for those, the old ones hold after a restart", "err", err)
	}
	s.tree.SetOptions(next.Files.Mode.FileMode, next.Files.Durable)
	s.driver.SetSettings(s.settings(next))
	s.conns.SetLimits(limits(next))
	s.public.use(ctx, next.FTP.PublicAddress)
	s.config, s.plain = next, plain
	s.warnOfHomes(next)
	s.watched.setHooks(next)
	s.watched.bus.Publish(event.Event{Kind: event.Reload})
	return ignored, nil
}

// settings is what the driver takes from the configuration.
func (s *server) settings(c *config.Config) driver.Settings {
	return driver.Settings{
		Accounts:       &accounts{c, s.passwords},
		FirstPort:      c.FTP.PassivePorts.First,
		LastPort:       c.FTP.PassivePorts.Last,
		Active:         c.FTP.Active,
		TLSRequired:    c.TLS.Mode == config.TLSRequired,
		DataTimeout:    c.FTP.DataTimeout.Duration,
		DataMinRate:    c.FTP.DataMinRate,
		HangUp:         c.Files.HangUp.Duration,
		StatusFile:     c.FTP.StatusFile,
		LeftoverMaxAge: c.Locks.LeftoverMaxAge.Duration,
		PublicAddress:  s.public.get,
	}
}

// accounts are those of the configuration, as the driver wants them.
type accounts struct {
	config    *config.Config
	passwords *config.Verifier
}

// Authenticate implements driver.Accounts.
func (a *accounts) Authenticate(ctx context.Context, t driver.Attempt) (driver.Account, error) {
	found, err := a.passwords.Login(ctx, a.config.Accounts, config.Attempt{
		Name: t.Name, Password: t.Password, From: t.From, Failures: t.Failures, Gone: t.Gone,
	})
	if errors.Is(err, config.ErrLogin) {
		err = driver.ErrLogin
	}
	if err != nil {
		return driver.Account{}, err
	}
	return driver.Account{
		Name: found.Name, Home: found.Home, Start: found.Start, Read: found.Reads(), Write: found.Writes(),
		Chmod: found.Chmod, Admin: found.Admin, MaxLocks: found.MaxLocks,
	}, nil
}

// rulesOf are the lock rules of a configuration.
func rulesOf(c *config.Config) []lock.Rule {
	rules := make([]lock.Rule, len(c.Rules))
	for i, r := range c.Rules {
		rules[i] = lock.Rule{
			Match: r.Match, MaxAge: r.MaxAge.Duration, MaxIdle: r.MaxIdle.Duration, OnDisconnect: lock.Disconnect(r.OnDisconnect),
			Grace: r.Grace.Duration, LockDelay: r.LockDelay.Duration, Release: lock.ReleasePolicy(r.Release), AllowCwd: r.AllowCwd,
			Protection: &lock.Protection{Paths: r.Protects, WriteAs: lock.WritePolicy(r.WriteAs)},
			Contention: &lock.Contention{
				Wait: r.Wait.Duration, Queue: lock.QueuePolicy(r.Queue), QueueHold: r.QueueHold.Duration, Reentrant: r.Reentrant,
				Shared: r.Shared, ReadersShare: c.Locks.ReadersShare, Limit: r.Limit, Members: lock.MemberPolicy(r.Members),
			},
		}
	}
	return rules
}

// banner says where the server listens, with which account, and what to type next. A password is shown on a terminal alone, and
// only the one that was made here: that of the environment is known to who gave it.
func (s *server) banner(terminal bool) string {
	c := s.config
	address := typed(s.ports[0].Addr())
	account := c.Accounts[0].Name
	login := account // curl asks for the password
	var b strings.Builder
	fmt.Fprintf(&b, "ftplockd listens on %s\n", strings.Join(s.addresses(), ", "))
	fmt.Fprintf(&b, "serves %s; its own files are in %s\n", absolute(c.Root), absolute(c.State))
	if s.watched.page != nil {
		fmt.Fprintf(&b, "its page is at %s\n", s.watched.address())
	}
	fmt.Fprintf(&b, "account %s", account)
	switch {
	case s.plain == "":
	case os.Getenv(config.EnvPassword) != "":
		fmt.Fprintf(&b, ", password as in %s", config.EnvPassword)
		login += `:"$` + config.EnvPassword + `"`
	case terminal:
		fmt.Fprintf(&b, ", password %s", s.plain)
		login += ":" + s.plain
	default:
		file := filepath.Join(absolute(c.State), config.PasswordFile)
		fmt.Fprintf(&b, ", password in %s", file)
		login += `:"$(cat '` + file + `')"`
	}
	name, ok := s.sampleLock(c.Accounts[0])
	if !ok {
		b.WriteString("\n\nThe [[lock]] rules of the configuration say which names are locks.\n\n")
		return b.String()
	}
	curl := "curl -sv"
	if c.TLS.Mode == config.TLSRequired { // the certificate is hardly for the address
		curl = "curl -skv --ssl-reqd"
	}
	b.WriteString("\n\nTake a lock, see it refused, give it back:\n\n")
	for _, command := range []string{"MKD", "MKD", "RMD"} {
		fmt.Fprintf(&b, "  %s -u %s -Q '%s %s' ftp://%s/ 2>&1 | grep %s\n", curl, login, command, name, address, path.Base(name))
	}
	b.WriteString("\n")
	return b.String()
}

// sampleLock returns a name, as the account knows it, that the rules make a lock; false: none that can be guessed is. The usual ones
// come first, then what the rules' globs look like.
func (s *server) sampleLock(a config.Account) (string, bool) {
	guess := strings.NewReplacer("**/", "", "**", "demo", "*", "demo", "?", "x")
	names := []string{path.Join(a.Home, "/locks/demo"), path.Join(a.Home, "/demo_lock"), path.Join(a.Home, "/demo.lock")}
	for _, r := range s.config.Rules {
		names = append(names, path.Join("/", guess.Replace(r.Match)))
	}
	home := strings.TrimSuffix(a.Home, "/") + "/"
	for _, name := range names {
		if _, ok := s.table.Rules().For(lock.Name(name)); !ok || !strings.HasPrefix(name, home) {
			continue
		}
		if info, err := s.tree.Stat(path.Dir(name)); err == nil && info.IsDir() {
			return "/" + strings.TrimPrefix(name, home), true
		}
	}
	return "", false
}

// isTerminal reports whether a person reads what is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// typed is an address as a program on this machine connects to it.
func typed(a net.Addr) string {
	if host, port, err := net.SplitHostPort(a.String()); err == nil && net.ParseIP(host).IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return a.String()
}

// addresses are those that the server listens on, with the port that the system chose for ":0".
func (s *server) addresses() []string {
	var all []string
	for _, l := range s.ports {
		all = append(all, l.Addr().String())
	}
	return all
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}
