package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/status"
)

// controlSocket is the name of the control socket in the state directory. It has mode 0600: a process that
// can connect to it is an administrator.
const controlSocket = "control.sock"

// statusSuspended is the HTTP status of a server that serves no clients, or of one that is suspended: another server may be the active one.
const statusSuspended = http.StatusMisdirectedRequest

// SuspendedError is the error of a server that serves no clients, or is suspended.
type SuspendedError struct{ Err error }

func (e SuspendedError) Error() string { return e.Err.Error() }

func (e SuspendedError) Unwrap() error { return e.Err }

// admin answers administrators: it implements web.Source, and serves the control socket: HTTP over a Unix socket. The only clients of
// the socket are the commands of this program, of the same version.
type admin struct {
	*server
	dir    *os.File     // the state directory; nil: listen was not called
	socket net.Listener // nil: it is not open
	http   http.Server
}

// listen opens the control socket. The log lets only one server use a state directory, so an existing socket was left by a server that died.
// After an error, call close.
func (a *admin) listen(state string) (err error) {
	if a.dir, err = os.Open(state); err != nil {
		return err
	}
	if err := os.Remove(a.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	socket, err := net.Listen("unix", socketPath(a.dir))
	if err != nil {
		return err
	}
	socket.(*net.UnixListener).SetUnlinkOnClose(false) // close removes it by its path
	a.socket = control.Retrying(socket, a.log)
	a.http = http.Server{Handler: a.handler(), ReadHeaderTimeout: 10 * time.Second}
	return os.Chmod(a.path(), 0o600)
}

func (a *admin) path() string { return filepath.Join(a.dir.Name(), controlSocket) }

// socketPath returns a path for the control socket. The path of a socket has at most 107 bytes. On Linux, a longer one leads through the open
// directory; other systems refuse it.
func socketPath(dir *os.File) string {
	path := filepath.Join(dir.Name(), controlSocket)
	if len(path) > 100 && runtime.GOOS == "linux" {
		return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), controlSocket)
	}
	return path
}

// serve answers requests until close.
func (a *admin) serve(context.Context) error {
	if err := a.http.Serve(a.socket); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// close waits for running requests and removes the socket.
func (a *admin) close() error {
	if a.dir == nil {
		return nil
	}
	errs := []error{a.dir.Close()}
	if a.socket != nil {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		errs = append(errs, a.http.Shutdown(ctx))
		if err := os.Remove(a.path()); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		if err := a.socket.Close(); !errors.Is(err, net.ErrClosed) { // serve was not called
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// answer is the answer to a request of a command: a value for JSON, nothing, or an error.
type answer func(*http.Request) (any, error)

// ServeHTTP implements http.Handler.
func (f answer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch v, err := f(r); {
	case errors.As(err, new(SuspendedError)):
		http.Error(w, err.Error(), statusSuspended)
	case err != nil:
		http.Error(w, err.Error(), http.StatusConflict)
	case v != nil:
		w.Header().Set("Content-Type", "application/json")
		_ = status.Write(w, v) // the client may have closed the connection
	}
}

// handler returns the requests that a server answers.
func (a *admin) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range map[string]answer{
		"POST /reload": a.requestReload,
		"GET /status":  func(r *http.Request) (any, error) { return a.status(r.Context()), nil },
		"GET /health": func(r *http.Request) (any, error) {
			if err := a.Ready(r.Context()); err != nil {
				return nil, fmt.Errorf("no lock can be granted: %w", err)
			}
			return nil, nil
		},
	} {
		mux.Handle(pattern, f)
	}
	for pattern, f := range map[string]answer{
		"GET /locks":    a.requestLocks,
		"GET /waiting":  func(r *http.Request) (any, error) { return a.Waiting(r.FormValue("name")), nil },
		"GET /refused":  func(*http.Request) (any, error) { return a.RefusedJobs(), nil },
		"GET /sessions": func(*http.Request) (any, error) { return a.Sessions(), nil },
		"POST /break":   a.requestBreak,
		"POST /clear":   a.requestClear,
		"POST /kick":    func(r *http.Request) (any, error) { return nil, a.Kick(r.FormValue("id"), "an administrator", "") },
	} {
		mux.Handle(pattern, answer(func(r *http.Request) (any, error) {
			if _, err := a.serving(); err != nil {
				return nil, SuspendedError{fmt.Errorf("this server serves no clients now: %w", err)}
			}
			return f(r)
		}))
	}
	return mux
}

// requestReload reloads the configuration. A reload that has begun is completed even if the client ends.
func (a *admin) requestReload(r *http.Request) (any, error) {
	done, err := a.reload(context.WithoutCancel(r.Context()))
	if err != nil {
		a.sinks.bus.Publish(event.Event{Kind: event.Reload, Reason: err.Error()})
	}
	return done, err
}

// requestLocks lists the locks, unless another server may have granted them again.
func (a *admin) requestLocks(*http.Request) (any, error) {
	all := a.Locks()
	if err := a.Valid(); err != nil {
		return nil, SuspendedError{err}
	}
	return all, nil
}

// requestBreak ends the hold with the token.
func (a *admin) requestBreak(r *http.Request) (any, error) {
	name := r.FormValue("name")
	token, err := strconv.ParseUint(r.FormValue("token"), 10, 64)
	if err == nil {
		err = a.Break(r.Context(), name, token, "administrator", r.FormValue("reason"))
	}
	if errors.Is(err, lock.ErrStale) {
		err = fmt.Errorf("%s is not held with token %d", name, token)
	}
	return nil, err
}

// requestClear allows refused jobs to change files again, and returns their number.
func (a *admin) requestClear(r *http.Request) (any, error) {
	account, address, _ := strings.Cut(r.FormValue("job"), "@")
	name := r.FormValue("name")
	n := fromService(a.server, func(v *service) int { return v.jobs.Clear(lock.Name(name), account, address) })
	if n == 0 {
		return nil, fmt.Errorf("no job is refused at %s", name)
	}
	return n, nil
}

// StateError adds to an error of a state directory what it means for a command about its server.
func StateError(state string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("this user may not use the state directory %s: run the command as root or as the user of the server (%w)", state, err)
	}
	return fmt.Errorf("no server uses the state directory %s: %w", state, err)
}

// Request sends a request to the server that uses the state directory, and returns its answer or its error.
func Request(ctx context.Context, state, method, path string) ([]byte, error) {
	dir, err := os.Open(state)
	if err != nil {
		return nil, StateError(state, err)
	}
	defer dir.Close()
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socketPath(dir))
		},
	}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "http://ftplockd"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && errors.Is(op, fs.ErrPermission) {
			return nil, StateError(state, op.Err)
		}
		if op != nil {
			return nil, fmt.Errorf("no server answers in the state directory %s (%w)", state, op.Err)
		}
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 400 {
		err = errors.New(strings.TrimSpace(string(body)))
	}
	if response.StatusCode == statusSuspended {
		err = SuspendedError{err}
	}
	return body, err
}
