package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/driver"
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/files"
	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/hostdir"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
	"github.com/ftplockd/ftplockd/reaper"
)

// lockLog is the log of locks.
type lockLog interface {
	lock.Log
	lock.History
	reaper.Sweeper
	// Ready returns nil if a grant could be recorded.
	Ready() error
	// Size returns how many bytes the locks and their history take.
	Size() int64
	// Run does the log's work until ctx ends, and then returns nil. An error must end the server.
	Run(ctx context.Context) error
	Close() error
}

var _ lockLog = (*journal.Log)(nil)

// service has the parts that clients use.
type service struct {
	server *server

	ports       []port  // the open addresses
	gates       []*gate // of the ports of a server of several
	tree        *files.Tree
	lockedRoot  io.Closer // nil: the root is not locked
	log         lockLog
	term        clusterLog    // the log of a server of several; nil for a single server
	logDone     chan struct{} // closed when the log's Run has returned
	stopLog     func()        // ends the log's Run
	hostdir     *hostdir.Disk
	directories bool // each lock has a directory in the tree
	table       *lock.Table
	jobs        *job.Manager
	driver      *driver.Server
	conns       *control.Server
}

// port is an open address.
type port struct {
	net.Listener
	implicit *tls.Config // for TLS from the start, or nil
}

// openPorts opens all addresses.
func (s *server) openPorts(ctx context.Context) (ports []port, err error) {
	s.addresses.Lock()
	defer s.addresses.Unlock()
	open := func(key string, addresses []string, implicit *tls.Config) {
		for _, address := range addresses {
			if err != nil {
				return
			}
			var l net.Listener
			if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err != nil {
				err = errors.Join(fmt.Errorf("%s: %w", key, err), closePorts(ports))
				return
			}
			ports = append(ports, port{l, implicit})
		}
	}
	open("listen", s.config.Listen, nil)
	if s.tls != nil {
		open("tls.implicit_listen", s.config.TLS.ImplicitListen, s.tls.config())
	}
	return ports, err
}

func closePorts(ports []port) error {
	var errs []error
	for _, p := range ports {
		if err := p.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// open opens the served tree, the log and the directories of locks, and makes the table. If it fails, close closes the parts that are open.
func (v *service) open(ctx context.Context) error {
	s, c := v.server, v.server.config
	rules, err := lock.NewRules(RulesOf(c))
	if err != nil {
		return err
	}
	if err := markShared(c); err != nil {
		return err
	}
	state := cmp.Or(c.Etcd.SharedState, c.State) // of the tree
	o := files.Options{State: filepath.Join(state, "uploads"), Mode: c.Files.Mode.FileMode, Durable: c.Files.Durable, Log: s.log}
	if v.term != nil {
		o.Epoch = v.term.Generation()
		o.Searched = func() { s.election.progress.Add(1) }
	}
	if v.tree, err = files.Open(c.Root, o); err != nil {
		return err
	}
	if err := v.keepRoot(); err != nil {
		return err
	}
	if c.Etcd.SharedState != "" { // the previous server may have stopped during a publication
		if err := v.tree.SweepEarlier(ctx); err != nil {
			return err
		}
	}
	if err := v.makePrefixes(rules); err != nil {
		return err
	}
	if v.log == nil {
		if v.log, err = s.openJournal(); err != nil {
			return err
		}
	}
	v.directories = c.Locks.Directories
	var valid func() error
	if v.term != nil {
		valid = v.term.Valid
	}
	v.hostdir, err = hostdir.Open(hostdir.Options{
		FS: v.tree, Clock: s.clock, Rules: rules, MakeDirectories: v.directories, Valid: valid, Log: s.log,
		Held: func(n lock.Name) bool { return v.table.HeldWithin(n) || v.table.Valid() != nil },
	})
	if err != nil {
		return err
	}
	if v.directories {
		v.hostdir.WarnOfFileSystems()
	}
	table := lock.Options{
		Log: v.log, Disk: v.hostdir, Clock: s.clock, Rules: rules, Logger: s.log, Observe: v.observe, Valid: valid,
	}
	if v.table, err = lock.NewTable(ctx, table); err != nil {
		return err
	}
	v.jobs = job.New(job.Options{Table: v.table, Clock: s.clock, Rules: jobRulesOf(c, rules)})
	return nil
}

// observe reports a change of a lock. Uploads under an automatic lock that ended are aborted first.
func (v *service) observe(r *lock.Record) {
	if v.driver != nil { // the table is made before the driver and the jobs
		v.driver.ObserveEnd(r)
	}
	v.server.sinks.observe(v.jobs, r) // while the manager knows the client of the hold
	if v.jobs != nil {
		v.jobs.Observe(r)
	}
}

// openJournal opens the log of a single server.
func (s *server) openJournal() (lockLog, error) {
	c := s.config
	j, err := journal.Open(journal.Options{
		Dir: c.State, Clock: s.clock, BootID: s.clock.BootID(), Durable: c.Locks.Durable, Log: s.log,
		Synced:     s.sinks.metrics.Synced,
		HistoryAge: days(c.Locks.HistoryDays), HistorySize: c.Locks.HistorySize.Bytes,
	})
	if err != nil {
		return nil, err // no *journal.Log that is nil in the interface
	}
	return j, nil
}

// runLog runs the log until close. The context that it returns ends when the log fails.
func (v *service) runLog(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	running, end := context.WithCancel(context.Background())
	v.stopLog, v.logDone = end, make(chan struct{})
	go func() {
		defer close(v.logDone)
		err := v.log.Run(running)
		cancel()
		if err != nil && running.Err() == nil {
			v.server.fail(err)
		}
	}()
	return ctx
}

func days(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }

// warnOfHomes logs the accounts whose home does not exist.
func (v *service) warnOfHomes(c *config.Config) {
	for _, a := range c.Accounts {
		if info, err := v.tree.Stat(a.Home); err != nil || !info.IsDir() {
			v.server.log.Warn("the home of an account is no directory of the served tree", "account", a.Name, "home", a.Home)
		}
	}
}

// makePrefixes makes the directories of the fixed parts of the rules' globs, so that the first MKD below /locks works. It makes all of them, or none.
func (v *service) makePrefixes(rules *lock.Rules) (err error) {
	var made []string
	for _, p := range rules.Prefixes() {
		for i, c := range string(p) + "/" {
			if i == 0 || c != '/' {
				continue
			}
			dir := string(p)[:i]
			if err = v.tree.Mkdir(dir, 0o755); err == nil {
				made = append(made, dir)
			}
		}
		if info, statErr := v.tree.Stat(string(p)); statErr != nil || !info.IsDir() {
			for _, dir := range slices.Backward(made) {
				err = errors.Join(err, v.tree.RemoveDir(dir))
			}
			return fmt.Errorf("could not make the directory %s of a [[lock]] rule: %w", p, err)
		}
	}
	return nil
}

// watchDirectories checks the directories of held locks until ctx ends, and ends the holds whose directories a program on the host removed.
func (v *service) watchDirectories(ctx context.Context) error {
	held := func(yield func(lock.Hold) bool) {
		for _, s := range v.table.All() {
			for _, h := range s.Holds {
				if h.Directory != (lock.DirectoryID{}) && !yield(h) {
					return
				}
			}
		}
	}
	v.hostdir.Watch(ctx, held, func(h lock.Hold) {
		if err := v.table.HostGone(ctx, h); err != nil {
			v.server.log.Warn("a lock whose directory is gone is still held", "lock", string(h.Name), "err", err)
		}
	})
	return nil
}

// serve begins to serve clients.
func (v *service) serve() {
	s, c := v.server, v.server.config
	o := driver.Options{
		Tree: v.tree, Table: v.table, Jobs: v.jobs, Clock: s.clock, Directories: c.Locks.Directories, HostDirectories: v.hostdir.HostDirectories,
		Log: s.log, Guessing: s.guessing, Settings: s.settings(c), Events: s.sinks.bus,
	}
	if s.tls != nil {
		o.SessionReuse = c.TLS.SessionReuse == config.ReuseRequired
		o.TLS = s.tls.config()
	}
	v.driver = driver.New(o)
	v.conns = v.driver.Control(control.Options{Limits: limits(c)})
	v.warnOfHomes(c)
	warnOfFiles(s.log, c)
	s.service.Store(v)

	reap := reaper.Reaper{Table: v.table, Sweepers: []reaper.Sweeper{v.driver, v.log, v.tree, v.hostdir}, Log: s.log}
	s.run("keeping the lock table", v.table.Run)
	s.run("watching the directories of locks", v.watchDirectories)
	s.run("reaping", reap.Run)
	for i, p := range v.ports {
		v.ports[i].Listener = v.conns.Listen(p.Listener, p.implicit)
		s.run("serving", func(context.Context) error { return v.driver.Serve(v.ports[i]) })
	}
}
