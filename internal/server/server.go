package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/guessing"
	"github.com/ftplockd/ftplockd/internal/lock"
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

	sinks           *eventSinks
	tls             *certificate // nil: no TLS
	admin           admin
	ready           *readiness
	public          *publicAddress
	passwords       *config.Verifier
	guessing        *guessing.Limiter // of logins, by FTP and on the page
	builtinPassword string            // the password of the built-in account; "" without that account

	service     atomic.Pointer[service] // the parts that clients use; nil: no client is served
	election    *election               // nil: the server is a single one
	reservedDir io.Closer               // holds the state directory of a server without a journal

	addresses sync.Mutex // held while the addresses for clients are opened or checked

	background sync.WaitGroup
	context    context.Context // of the background
	cancel     context.CancelFunc
	failed     chan error // gets the error of a part that fails, see fail

	mu     sync.Mutex // held over a reload
	config *config.Config

	logins atomic.Pointer[config.Config] // the current accounts, readable during a reload
}

// run runs f in the background until it returns. An error ends the server, unless it stops already.
func (s *server) run(what string, f func(context.Context) error) {
	s.background.Go(func() {
		if err := f(s.context); err != nil {
			s.fail(fmt.Errorf("%s: %w", what, err))
		}
	})
}

// fail ends the server because of the error of a part, unless it stops already.
func (s *server) fail(err error) {
	select {
	case s.failed <- err:
	case <-s.context.Done():
	}
}

// fromService returns a value of the service, or the zero value if no client is served.
func fromService[T any](s *server, get func(*service) T) (value T) {
	if v := s.service.Load(); v != nil {
		value = get(v)
	}
	return value
}

// canGrant returns nil if a lock can be granted. It may wait for the disk.
func (s *server) canGrant() error {
	v, err := s.serving()
	if err != nil {
		return err
	}
	if err := v.log.Ready(); err != nil {
		return err
	}
	if v.term != nil { // uploads under the lock would hang with the file system
		if err := s.checkFiles(); err != nil {
			return err
		}
	}
	if !v.directories {
		return nil
	}
	return v.tree.Ready()
}

// serving returns the service, or an error if no client is served.
func (s *server) serving() (*service, error) {
	if v := s.service.Load(); v != nil {
		return v, nil
	}
	if s.election != nil {
		return nil, errors.New(s.election.state().String())
	}
	return nil, errors.New("the server is starting")
}
