package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/control"
	"github.com/ftplockd/ftplockd/internal/event"
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

// admin is the server's side of the control socket: HTTP over a Unix socket. Its only clients are the commands of
// this program, of the same version.
type admin struct {
	listener net.Listener
	http     *http.Server
	file     string
	dir      *os.File
}

// listenAdmin opens the control socket. The journal lets only one server use a state directory, so
// an existing socket was left by a server that died.
func listenAdmin(state string, handler http.Handler, log *slog.Logger) (*admin, error) {
	dir, err := os.Open(state)
	if err != nil {
		return nil, err
	}
	a := &admin{
		http: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second},
		file: filepath.Join(state, controlSocket),
		dir:  dir,
	}
	if err := os.Remove(a.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, dir.Close())
	}
	socket, err := net.Listen("unix", socketPath(dir))
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	socket.(*net.UnixListener).SetUnlinkOnClose(false) // close removes it by its path
	a.listener = control.Retrying(socket, log)
	if err := os.Chmod(a.file, 0o600); err != nil {
		return nil, errors.Join(err, a.listener.Close(), dir.Close())
	}
	return a, nil
}

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
func (a *admin) serve() error {
	if err := a.http.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler returns the requests that a server answers.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, r *http.Request) {
		// A reload that has begun is completed even if the client ends.
		done, err := s.reload(context.WithoutCancel(r.Context()))
		if err != nil {
			s.sinks.bus.Publish(event.Event{Kind: event.Reload, Reason: err.Error()})
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		writeJSON(w, done)
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) { writeJSON(w, s.status(r.Context())) })
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		if err := s.ready.await(r.Context()); err != nil {
			http.Error(w, "no lock can be granted: "+err.Error(), http.StatusServiceUnavailable)
		}
	})
	page := source{s}
	for pattern, serve := range map[string]http.HandlerFunc{
		"GET /locks":    page.serveLocks,
		"GET /waiting":  func(w http.ResponseWriter, r *http.Request) { writeJSON(w, page.Waiting(r.FormValue("name"))) },
		"GET /refused":  func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, page.RefusedJobs()) },
		"GET /sessions": func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, page.Sessions()) },
		"POST /break":   page.serveBreak,
		"POST /clear":   page.serveClear,
		"POST /kick": func(w http.ResponseWriter, r *http.Request) {
			if err := page.Kick(r.FormValue("id"), "an administrator", ""); err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
			}
		},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if _, err := s.serving(); err != nil {
				http.Error(w, "this server serves no clients now: "+err.Error(), statusSuspended)
				return
			}
			serve(w, r)
		})
	}
	return mux
}

// close waits for running requests and removes the socket.
func (a *admin) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	err := errors.Join(a.http.Shutdown(ctx), a.dir.Close())
	if rerr := os.Remove(a.file); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	if cerr := a.listener.Close(); !errors.Is(cerr, net.ErrClosed) {
		err = errors.Join(err, cerr) // serve was not called
	}
	return err
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
