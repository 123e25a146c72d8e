// Package hook sends events to programs and web servers of the operator.
//
// Its types: a [Hook] selects events and names a program or a URL; a [Runner] runs hooks.
//
// Guarantees: no command waits for a hook. The events of a hook wait in a queue of their own; when 1,000 wait, further ones are
// dropped, counted and logged. A hook runs once at a time, in the order of the events, also across a change of the configuration.
// A run that exceeds the hook's timeout is killed, with the processes that it started.
//
// Caveats: a server that is killed loses its queues. A failed run is not repeated. A process that left the hook's process group is
// found by its environment, on Linux only: it survives the timeout if it runs as another user, or without the variable
// FTPLOCKD_HOOK.
//
// Start reading at [New].
package hook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/status"
)

// Hook is a program or URL that receives events.
type Hook struct {
	On      []event.Kind
	Match   string        // a doublestar glob over the lock or the file; "": all
	Run     []string      // a program and its arguments; it reads the event as JSON from standard input
	URL     string        // where the event is sent by POST instead
	Timeout time.Duration // of one run
}

// target returns the program or URL. Hooks of two configurations with one target are the same hook.
func (h Hook) target() string {
	if h.URL != "" {
		return h.URL
	}
	return strings.Join(h.Run, "\x00")
}

// label returns the target for the log. Arguments, and all of a URL but scheme and host, may be secrets.
func (h Hook) label() string {
	if h.URL == "" {
		return h.Run[0]
	}
	u, err := url.Parse(h.URL)
	if err != nil {
		return "url"
	}
	return u.Scheme + "://" + u.Host
}

// selects reports whether the hook receives an event.
func (h Hook) selects(e event.Event) bool {
	if !slices.Contains(h.On, e.Kind) {
		return false
	}
	name := cmp.Or(e.Path, e.Lock)
	if h.Match == "" || name == "" {
		return h.Match == ""
	}
	ok, err := doublestar.Match(h.Match, name)
	return ok && err == nil
}

const (
	maxQueued = 1000
	maxOutput = 4 << 10 // logged bytes of the output of a failed run
	killDelay = 2 * time.Second
)

// Options are the settings of a Runner.
type Options struct {
	Log *slog.Logger
	// Ran is called with the result of each run: "ok", "failed", "timeout" or "dropped". nil: no call.
	Ran func(result string)
}

// Runner runs hooks. Several goroutines may use it.
type Runner struct {
	o       Options
	context context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu     sync.Mutex
	closed bool
	queues []*queue // of the configured hooks, in order
	ending []*queue // of removed hooks with events left
}

// queue has the events that wait for one hook. Runner.mu guards it.
type queue struct {
	hook    Hook
	waiting []run
	running bool // a goroutine runs the hook for the events in waiting
	dropped int  // events in a row
}

// run is an event that waits, and the hook as it was configured when the event came.
type run struct {
	hook  Hook
	event event.Event
}

// New returns a Runner with these hooks. Call Close to end it.
func New(o Options, hooks ...Hook) *Runner {
	r := &Runner{o: o}
	r.context, r.cancel = context.WithCancel(context.Background())
	r.Set(hooks)
	return r
}

// Set replaces the hooks. A hook whose target stays keeps its queue, and events of a removed hook are still delivered.
func (r *Runner) Set(hooks []Hook) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := append(r.queues, r.ending...)
	r.queues = make([]*queue, len(hooks))
	for i, h := range hooks {
		q := new(queue)
		if at := slices.IndexFunc(before, func(q *queue) bool { return q.hook.target() == h.target() }); at >= 0 {
			q = before[at]
			before = slices.Delete(before, at, at+1)
		}
		q.hook, r.queues[i] = h, q
	}
	r.ending = slices.DeleteFunc(before, func(q *queue) bool { return !q.running })
}

// Sink queues events for the hooks that receive them. It never waits.
func (r *Runner) Sink(batch []event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	for _, e := range batch {
		for _, q := range r.queues {
			if q.hook.selects(e) {
				r.addLocked(q, e)
			}
		}
	}
}

func (r *Runner) addLocked(q *queue, e event.Event) {
	if len(q.waiting) >= maxQueued {
		if q.dropped++; q.dropped == 1 {
			r.o.Log.Warn("hook is too slow: its events are dropped", "hook", q.hook.label(), "waiting", maxQueued)
		}
		r.countRun("dropped")
		return
	}
	if n := q.dropped; n > 0 {
		r.o.Log.Warn("hook continues after dropped events", "hook", q.hook.label(), "dropped", n)
		q.dropped = 0
	}
	q.waiting = append(q.waiting, run{q.hook, e})
	if !q.running {
		q.running = true
		r.workers.Go(func() { r.work(q) })
	}
}

// work runs a hook for each event in its queue, one after the other.
func (r *Runner) work(q *queue) {
	for {
		next, ok := r.next(q)
		if !ok {
			return
		}
		r.run(next.hook, next.event)
	}
}

// next takes an event from a queue. It returns false if the queue is empty.
func (r *Runner) next(q *queue) (next run, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(q.waiting) == 0 {
		q.running, q.waiting = false, nil
		r.ending = slices.DeleteFunc(r.ending, func(e *queue) bool { return e == q })
		return run{}, false
	}
	next, q.waiting = q.waiting[0], q.waiting[1:]
	return next, true
}

// Close delivers the queued events until ctx ends; then it kills the runs under way and drops the rest.
func (r *Runner) Close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	stop := context.AfterFunc(ctx, r.cancel)
	defer stop()
	r.workers.Wait()
	r.cancel()
}

func (r *Runner) countRun(result string) {
	if r.o.Ran != nil {
		r.o.Ran(result)
	}
}

// run runs a hook for one event.
func (r *Runner) run(h Hook, e event.Event) {
	if r.context.Err() != nil {
		r.countRun("dropped")
		return
	}
	ctx, cancel := context.WithTimeout(r.context, h.Timeout)
	defer cancel()
	err := h.deliver(ctx, document(e))
	switch {
	case err == nil:
		r.countRun("ok")
		return
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("the run exceeded its timeout of %v and was killed", h.Timeout)
		r.countRun("timeout")
	default:
		r.countRun("failed")
	}
	r.o.Log.Warn("hook failed", "hook", h.label(), "event", string(e.Kind), "lock", e.Lock, "path", e.Path, "err", err)
}

// deliver runs the program or posts to the URL, and returns an error with the reason of a failure.
func (h Hook) deliver(ctx context.Context, document []byte) error {
	if h.URL != "" {
		return h.post(ctx, document)
	}
	mark := runMark + "=" + rand.Text()
	cmd := exec.CommandContext(ctx, h.Run[0], h.Run[1:]...)
	cmd.Env = append(environment(), mark)
	cmd.Stdin = bytes.NewReader(document)
	var output outputStart
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = killDelay
	cmd.Cancel = func() error {
		err := killGroup(cmd.Process)
		killMarked(mark)
		return err
	}
	inGroup(cmd)
	// ErrWaitDelay: the program has succeeded, and a process that it left in the background keeps its output open.
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(output.text.String()))
	}
	return nil
}

// runMark is the variable of the environment that marks the processes of one run.
const runMark = "FTPLOCKD_HOOK"

// environment returns the server's environment without its own variables, which have passwords.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FTPLOCKD_") })
}

// post sends a document. It follows no redirects. Its errors do not contain the URL.
func (h Hook) post(ctx context.Context, document []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(document))
	if err != nil {
		return withoutURL(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ftplockd")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		return withoutURL(err)
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxOutput) // so that the connection can serve the next event
	if answer.StatusCode/100 != 2 {
		return errors.New(answer.Status) // the body may repeat the URL
	}
	return nil
}

// withoutURL returns the cause of an error of net/http, which contains the URL with its user and token.
func withoutURL(err error) error {
	var named *url.Error
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

// outputStart keeps the first maxOutput bytes. It does not embed the buffer, whose ReadFrom would keep all of them.
type outputStart struct{ text bytes.Buffer }

func (o *outputStart) Write(p []byte) (int, error) {
	o.text.Write(p[:min(len(p), maxOutput-o.text.Len())])
	return len(p), nil
}

// document returns the JSON of an event.
func document(e event.Event) []byte {
	var b bytes.Buffer
	err := status.Write(&b, status.Event{
		Time: e.Time.UTC(), Event: string(e.Kind), Cause: e.Cause, Lock: e.Lock, LockEncoded: status.Encoded(e.Lock), Token: e.Token,
		Holder: e.Holder.String(), By: e.By.String(), Session: e.Session.String(), Account: e.Account, Remote: e.Remote,
		Path: e.Path, PathEncoded: status.Encoded(e.Path), Bytes: size(e), SHA256: e.SHA256,
		Held: e.Held.Seconds(), Waited: e.Waited.Seconds(), Reason: e.Reason, Automatic: e.Automatic,
	})
	if err != nil {
		panic(err) // every event has a JSON form
	}
	return b.Bytes()
}

func size(e event.Event) *int64 {
	if e.Kind != event.Publish && e.Kind != event.Discard && e.Kind != event.Unconfirmed {
		return nil
	}
	return &e.Bytes
}
