// Package hook tells programs and web servers of the operator's what happens on the server.
//
// Its types: a [Hook] says of which events who is told; a [Runner] tells them.
//
// Guarantees: a hook is never in the way of a command: its events wait in a queue of their own, and when 1,000 wait, further
// ones are dropped, counted and logged. One run of a hook follows the other, in the order of the events. A run that takes
// longer than the hook's timeout is killed, with the processes that it started.
//
// Caveats: events are lost when the server is killed. A hook that fails is not run again.
//
// Start reading at [New].
package hook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/ftplockd/ftplockd/internal/event"
)

// Hook says who is told of what.
type Hook struct {
	On      []event.Kind
	Match   string        // a doublestar glob over the lock or the file; "": all
	Run     []string      // a program and its arguments: reads the event as JSON from standard input
	URL     string        // or where the event is sent by POST
	Timeout time.Duration // of one run
}

// name is how the log calls it.
func (h Hook) name() string {
	if h.URL != "" {
		return h.URL
	}
	return strings.Join(h.Run, " ")
}

// wants reports whether the hook is for an event.
func (h Hook) wants(e event.Event) bool {
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
	maxOutput = 4 << 10 // of what a hook says that failed, so much is logged
	killDelay = 2 * time.Second
)

// Options are what a Runner is made of.
type Options struct {
	Hooks []Hook
	Log   *slog.Logger
	// Ran is told of each run: "ok", "failed", "timeout" or "dropped". Nil: nobody.
	Ran func(result string)
}

// Runner runs hooks. It is for use by several goroutines.
type Runner struct {
	o       Options
	queues  []chan event.Event // one for each hook
	context context.Context
	cancel  context.CancelFunc
	workers sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	dropped []int // of each hook, in a row
}

// New starts a Runner. Call Close to end it.
func New(o Options) *Runner {
	r := &Runner{o: o, dropped: make([]int, len(o.Hooks))}
	r.context, r.cancel = context.WithCancel(context.Background())
	for _, h := range o.Hooks {
		queue := make(chan event.Event, maxQueued)
		r.queues = append(r.queues, queue)
		r.workers.Go(func() {
			for e := range queue {
				r.run(h, e)
			}
		})
	}
	return r
}

// Sink hands events to the hooks that want them. It never waits.
func (r *Runner) Sink(batch []event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	for _, e := range batch {
		r.handLocked(e)
	}
}

func (r *Runner) handLocked(e event.Event) {
	for i, h := range r.o.Hooks {
		if !h.wants(e) {
			continue
		}
		select {
		case r.queues[i] <- e:
			if n := r.dropped[i]; n > 0 {
				r.o.Log.Warn("hook goes on; it was not told of events", "hook", h.name(), "dropped", n)
				r.dropped[i] = 0
			}
		default:
			if r.dropped[i]++; r.dropped[i] == 1 {
				r.o.Log.Warn("hook is too slow: it is not told of events", "hook", h.name(), "waiting", maxQueued)
			}
			r.ran("dropped")
		}
	}
}

// Close runs what waits, until ctx ends: then it kills what runs, and drops the rest.
func (r *Runner) Close(ctx context.Context) {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		for _, queue := range r.queues {
			close(queue)
		}
	}
	r.mu.Unlock()
	stop := context.AfterFunc(ctx, r.cancel)
	defer stop()
	r.workers.Wait()
	r.cancel()
}

func (r *Runner) ran(result string) {
	if r.o.Ran != nil {
		r.o.Ran(result)
	}
}

// run tells one hook of one event.
func (r *Runner) run(h Hook, e event.Event) {
	if r.context.Err() != nil {
		r.ran("dropped")
		return
	}
	ctx, cancel := context.WithTimeout(r.context, h.Timeout)
	defer cancel()
	err := h.tell(ctx, document(e))
	switch {
	case err == nil:
		r.ran("ok")
		return
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it took longer than %v and was ended", h.Timeout)
		r.ran("timeout")
	default:
		r.ran("failed")
	}
	r.o.Log.Warn("hook failed", "hook", h.name(), "event", string(e.Kind), "lock", e.Lock, "path", e.Path, "err", err)
}

func (h Hook) tell(ctx context.Context, document []byte) error {
	if h.URL != "" {
		return h.post(ctx, document)
	}
	cmd := exec.CommandContext(ctx, h.Run[0], h.Run[1:]...)
	cmd.Env = environment()
	cmd.Stdin = bytes.NewReader(document)
	var said limited
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = killDelay
	inGroup(cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// environment is the server's, without passwords.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "FTPLOCKD_") })
}

// post sends a document. It follows no redirects: an operator names the place itself.
func (h Hook) post(ctx context.Context, document []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(document))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "ftplockd")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxOutput)) // for the log
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

// limited keeps the beginning of what is written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(0, maxOutput-l.Len()))])
	return len(p), nil
}

// document is an event as hooks read it. The names of the keys keep their meaning from version to version.
func document(e event.Event) []byte {
	text, err := json.Marshal(struct {
		Time        time.Time  `json:"time"`
		Event       event.Kind `json:"event"`
		Cause       string     `json:"cause,omitempty"`
		Lock        string     `json:"lock,omitempty"`         // bytes that are no UTF-8 show as U+FFFD
		LockEncoded string     `json:"lock_encoded,omitempty"` // percent-encoded, if the name is no UTF-8
		Token       uint64     `json:"token,omitempty"`
		Holder      string     `json:"holder,omitempty"`
		By          string     `json:"by,omitempty"`
		Session     string     `json:"session,omitempty"`
		Account     string     `json:"account,omitempty"`
		Remote      string     `json:"remote,omitempty"`
		Path        string     `json:"path,omitempty"`
		PathEncoded string     `json:"path_encoded,omitempty"`
		Bytes       *int64     `json:"bytes,omitempty"`
		SHA256      string     `json:"sha256,omitempty"`
		Held        float64    `json:"held_seconds,omitempty"`
		Waited      float64    `json:"waited_seconds,omitempty"`
		Reason      string     `json:"reason,omitempty"`
	}{
		e.Time.UTC(), e.Kind, e.Cause, e.Lock, encoded(e.Lock), e.Token, e.Holder, e.By, e.Session, e.Account, e.Remote,
		e.Path, encoded(e.Path), size(e), e.SHA256, e.Held.Seconds(), e.Waited.Seconds(), e.Reason,
	})
	if err != nil {
		panic(err) // all of it can be marshalled
	}
	return append(text, '\n')
}

// encoded is a name that is no UTF-8, percent-encoded; "" for others.
func encoded(name string) string {
	if utf8.ValidString(name) {
		return ""
	}
	return (&url.URL{Path: name}).EscapedPath()
}

func size(e event.Event) *int64 {
	if e.Kind != event.Publish && e.Kind != event.Discard {
		return nil
	}
	return &e.Bytes
}
