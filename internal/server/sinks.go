package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/hook"
	"github.com/ftplockd/ftplockd/internal/job"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/metrics"
	"github.com/ftplockd/ftplockd/internal/web"
)

// handler writes the log.
func (f LogFormat) handler(w io.Writer, level slog.Level) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if f == LogJSON {
		o.ReplaceAttr = forJSON
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

// forJSON changes attributes that JSON cannot represent. A name that is not UTF-8 is written as in the text log, such as \x8e: JSON would
// make one name of all of them. A duration, "age", becomes "age_seconds": JSON would have nanoseconds.
func forJSON(_ []string, a slog.Attr) slog.Attr {
	switch {
	case a.Value.Kind() == slog.KindString && !utf8.ValidString(a.Value.String()):
		quoted := strconv.Quote(a.Value.String())
		a.Value = slog.StringValue(quoted[1 : len(quoted)-1])
	case a.Value.Kind() == slog.KindDuration:
		a = slog.Float64(a.Key+"_seconds", a.Value.Duration().Seconds())
	}
	return a
}

// eventSinks has the sinks of events: the log, the xferlog, the metrics, the page and the hooks.
type eventSinks struct {
	server      *server
	bus         *event.Bus
	metrics     *metrics.Metrics
	xferlog     *os.File     // nil: no xferlog
	madeXferlog bool         // this start made the xferlog
	page        *web.Server  // nil: no page
	listen      net.Listener // of the page
	http        *http.Server
	secure      bool // the page has TLS and a login
	hooks       *hook.Runner
}

// stopWithin is the time for requests of the page, and then for hooks, to finish when the server stops.
const stopWithin = 5 * time.Second

// openSinks opens the sinks of events. The server calls it before it takes its state directory, so a start that fails here has
// changed nothing.
func (s *server) openSinks(ctx context.Context) (_ *eventSinks, err error) {
	c := s.config
	if err := checkHooks(c); err != nil {
		return nil, err
	}
	w := &eventSinks{server: s}
	state := metrics.State{
		Held:        func() int { return fromService(s, func(v *service) int { return v.table.Count().Holds }) },
		Waiting:     func() int { return fromService(s, func(v *service) int { return v.table.Count().Waiting }) },
		Sessions:    func() int { return fromService(s, func(v *service) int { return len(v.table.Sessions()) }) },
		Transfers:   func() int { return fromService(s, func(v *service) int { return v.driver.CountTransfers() }) },
		JournalSize: func() int64 { return fromService(s, func(v *service) int64 { return v.log.Size() }) },
		Dropped:     w.dropped,
		Version:     Version(),
	}
	state.Expires = make(map[string]func() time.Time)
	for _, e := range certificatesOf(c) {
		state.Expires[e.Key] = func() time.Time { return s.expiryOf(e) }
	}
	if c.Etcd.On() {
		state.Cluster, state.States = func() string { return s.election.state().name }, clusterStates
		state.Term = func() int { return int(s.election.lastOverview().Term) }
		state.Standbys = func() int { return s.election.lastOverview().Standbys }
		state.Lease = func() time.Duration { return s.election.leaseLeft() }
		state.Differing = func() int { return len(s.election.cluster.Differing()) }
		state.Suspended = func() time.Duration {
			if since := s.election.state().since; !since.IsZero() {
				return time.Since(since)
			}
			return 0
		}
		state.Database = func() (size, quota int64, full bool) {
			now := s.election.lastSpace()
			return now.Size, now.Quota, now.Full
		}
	}
	w.metrics = metrics.New(state)
	lines := func(to io.Writer) slog.Handler { return s.options.LogFormat.handler(to, s.options.LogLevel) }
	w.hooks = hook.New(hook.Options{Log: s.log, Ran: w.metrics.Hooked}, hooksOf(c)...)
	sinks := []event.Sink{s.noteAttempts, event.Log(s.logTo, lines), w.metrics.Sink, w.hooks.Sink}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.closeFiles(), w.removeNewXferlog())
		}
	}()
	if c.Xferlog != "" {
		if err := w.openXferlog(c.Xferlog); err != nil {
			return nil, fmt.Errorf("xferlog: %w", err)
		}
		sinks = append(sinks, event.Xferlog(w.xferlog, func(err error) { s.log.Error("a line of the xferlog was not written", "err", err) }))
	}
	if err := w.openPage(ctx); err != nil {
		return nil, err
	}
	if w.page != nil {
		sinks = append(sinks, w.page.Sink)
	}
	w.bus = event.NewBus(sinks...)
	return w, nil
}

// dropped returns the number of lost events and lost lines of the log.
func (w *eventSinks) dropped() uint64 {
	n := w.bus.Dropped()
	if log, ok := w.server.logTo.(*unblocked); ok {
		n += log.Dropped()
	}
	return n
}

// openXferlog opens the xferlog for appending.
func (w *eventSinks) openXferlog(file string) (err error) {
	const flags, mode = os.O_CREATE | os.O_WRONLY | os.O_APPEND, 0o640
	w.xferlog, err = os.OpenFile(file, flags|os.O_EXCL, mode)
	if w.madeXferlog = err == nil; errors.Is(err, fs.ErrExist) {
		w.xferlog, err = os.OpenFile(file, flags, mode)
	}
	return err
}

// openPage opens the address of the page. If the built-in address is in use, there is no page.
func (w *eventSinks) openPage(ctx context.Context) (err error) {
	s, c := w.server, w.server.config
	if c.HTTP.Listen == "" {
		return nil
	}
	w.listen, err = (&net.ListenConfig{}).Listen(ctx, "tcp", c.HTTP.Listen)
	if err != nil && s.options.ConfigFile == "" && errors.Is(err, syscall.EADDRINUSE) {
		s.log.Warn("there is no page: its address is in use", "http.listen", c.HTTP.Listen)
		return nil
	}
	if err != nil {
		return fmt.Errorf("http.listen: %w", err)
	}
	w.secure = !c.HTTP.OnLoopback()
	w.page = web.New(web.Options{
		Source: &s.admin, Metrics: w.metrics.Handler(), Login: w.secure, TLS: w.secure, Host: s.isCertified, Version: Version(),
	})
	w.http = w.page.HTTP(slog.NewLogLogger(s.log.Handler(), slog.LevelDebug))
	w.listen = web.Limit(control.Retrying(w.listen, s.log), pageConnections, control.NetworkOf)
	if w.secure {
		w.listen = tls.NewListener(w.listen, s.tls.config())
	}
	return nil
}

// pageConnections limits the connections to the page. They leave enough of 256 file descriptors to FTP.
const pageConnections = 128

// address returns the URL of the page.
func (w *eventSinks) address() string {
	scheme := "http"
	if w.secure {
		scheme = "https"
	}
	return scheme + "://" + localAddress(w.listen.Addr()) + "/"
}

// isCertified reports whether the server's certificate is valid for a host name.
func (s *server) isCertified(name string) bool {
	return s.tls != nil && s.tls.Load().Leaf.VerifyHostname(name) == nil
}

// run serves the page until stop. Then it returns http.ErrServerClosed.
func (w *eventSinks) run(ctx context.Context) error {
	w.http.BaseContext = func(net.Listener) context.Context { return ctx } // ends open pages when the server stops
	return w.http.Serve(w.listen)
}

// stop ends the page and its requests.
func (w *eventSinks) stop() {
	if w.http == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	if err := w.http.Shutdown(ctx); err != nil {
		w.http.Close()
	}
}

// close delivers the last events and closes the files.
func (w *eventSinks) close() error {
	w.bus.Close()
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	w.hooks.Close(ctx)
	return w.closeFiles()
}

func (w *eventSinks) closeFiles() error {
	var errs []error
	if w.listen != nil {
		if err := w.listen.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if w.xferlog != nil {
		errs = append(errs, w.xferlog.Close())
	}
	return errors.Join(errs...)
}

// removeNewXferlog removes the xferlog that a failed start has made.
func (w *eventSinks) removeNewXferlog() error {
	if !w.madeXferlog {
		return nil
	}
	return os.Remove(w.xferlog.Name())
}

// hooksOf returns the hooks of a configuration.
func hooksOf(c *config.Config) (all []hook.Hook) {
	for _, h := range c.Hooks {
		next := hook.Hook{Match: h.Match, Run: h.Run, URL: h.URL, Timeout: h.Timeout.Duration}
		for _, on := range h.On {
			next.On = append(next.On, event.Kind(on))
		}
		all = append(all, next)
	}
	return all
}

// checkHooks returns an error for a program that cannot be run.
func checkHooks(c *config.Config) error {
	for i, h := range c.Hooks {
		if len(h.Run) == 0 {
			continue
		}
		info, err := os.Stat(h.Run[0])
		switch {
		case err != nil:
			return fmt.Errorf("hook[%d].run: %w", i+1, err)
		case !info.Mode().IsRegular() || info.Mode()&0o111 == 0 && os.PathSeparator == '/':
			return fmt.Errorf("hook[%d].run: %s: is not an executable file", i+1, h.Run[0])
		}
	}
	return nil
}

// observe publishes an event for a record of the table. jobs is nil during the start.
func (w *eventSinks) observe(jobs *job.Manager, r *lock.Record) {
	e := event.Event{
		Kind: event.Acquire, Cause: string(r.Cause), Lock: string(r.Hold.Name), Token: uint64(r.Hold.Token), Holder: r.Hold.Owner,
		Waited: r.Waited, Free: r.Free, Late: r.Late, Reason: r.Note,
		Automatic: r.Hold.Job, Session: r.Hold.Owner.Session,
	}
	if r.Hold.Job && jobs != nil {
		e.Session = jobs.Client(e.Session)
	}
	switch r.Kind {
	case lock.Granted:
	case lock.Published:
		if r.Cause != lock.CauseRefuse && r.Cause != lock.CauseTwoRuns {
			return // the driver has published the event
		}
		e.Kind, e.Path, e.Holder = event.Job, string(r.File.Path), lock.Owner{}
		e.Account, e.Remote = r.By.Account, r.By.Address
	case lock.Ended:
		e.Kind, e.Held = kindOf(r.Cause), max(0, r.At.Boot-r.Hold.Acquired.Boot)
		if e.Kind == event.Break {
			e.By = r.By
		}
	default:
		return
	}
	w.bus.Publish(e)
}

// noteAttempts is a sink: it adds refused changes and discarded uploads of protected files to the history.
func (s *server) noteAttempts(events []event.Event) {
	v := s.service.Load()
	if v == nil {
		return
	}
	for _, e := range events {
		cause, name := lock.CauseProtect, lock.Name(e.Lock)
		if e.Kind == event.Discard {
			guards, _ := v.table.Rules().Guards(lock.Name(e.Path)) // its error means that no client may change the file
			if len(guards) == 0 {
				continue
			}
			cause, name = lock.CauseDiscard, guards[0]
		} else if e.Kind != event.Protect {
			continue
		}
		by := lock.Owner{Account: e.Account, Address: e.Remote, Session: e.Session}
		v.table.NoteAttempt(cause, name, by, e.Reason, lock.Publication{Path: lock.Name(e.Path), Bytes: e.Bytes})
	}
}

// kindOf returns the kind of event for the end of a hold.
func kindOf(c lock.Cause) event.Kind {
	switch c {
	case lock.CauseExpire, lock.CauseIdle:
		return event.Expire
	case lock.CauseBreak, lock.CauseHostGone:
		return event.Break
	}
	return event.Release
}
