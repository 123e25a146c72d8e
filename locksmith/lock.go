package locksmith

import (
	"context"
	"fmt"
	"path"
	"sync"
	"time"
)

// Lock is a lock that is held. All methods may be called by several goroutines at once.
//
// One goroutine of its own keeps it: it gives signs of life, looks whether the lock still stands and makes a lost connection again.
type Lock struct {
	o    Options
	e    *endpoint
	path string
	life context.Context // ends when the lock is over
	end  context.CancelFunc

	// turn holds the connection while nobody uses it: who takes it out owns it, and l.kept, until he puts it back.
	turn chan *session
	kept kept
	// beside holds the second connection, or nil: what is looked with while a transfer has the first one.
	beside chan *session

	quit    context.CancelFunc // ends the goroutine
	keeping sync.WaitGroup
	ending  sync.Once
	result  error // of Release

	mu      sync.Mutex
	token   uint64
	renewed time.Time // when the age began
	age     time.Duration
	err     error
	over    bool
	current *session // the one that turn is about, for cut
}

// kept is what belongs to whoever has the turn.
type kept struct {
	looker   *looker // of a server without tokens; nil: the mark is not taken yet
	mark     mark
	adopting bool // an MKD that would take the hold up again has lost its reply
}

// take makes a Lock of a grant. ctx may be over.
func (a *acquisition) take(ctx context.Context, r reply) (*Lock, error) {
	ctx = context.WithoutCancel(ctx)
	l := &Lock{
		o: a.o, e: a.e, path: a.named(r),
		turn: make(chan *session, 1), beside: make(chan *session, 1), current: a.s,
	}
	l.life, l.end = context.WithCancel(ctx)
	if a.s.nonce {
		g, _ := r.grant()
		l.granted(g)
	}
	if a.o.Shared && !l.shared(ctx, a.s) {
		a.last = fmt.Errorf("%w: %s: the server grants it to one holder alone, and it was to be shared", ErrRefused, l.path)
		if err := a.giveBack(ctx, true); err != nil {
			a.last = fmt.Errorf("%w (%w)", a.last, err)
		}
		l.end()
		return nil, a.last
	}
	l.start(ctx, a.s)
	return l, nil
}

// named is the lock's name in the 257, unless that is of another one: there is none in it, or its quotes are not doubled (pure-ftpd).
func (a *acquisition) named(r reply) string {
	asked := path.Clean(a.s.abs(a.o.Path))
	if name := r.quotedName(); name != "" && path.Base(path.Clean(name)) == path.Base(asked) {
		return name
	}
	return asked
}

// shared reports whether our hold is one of several that may be.
func (l *Lock) shared(ctx context.Context, s *session) bool {
	if l.Token() == 0 {
		return false
	}
	i, _, err := s.info(ctx, l.o.Path)
	if err != nil {
		return false
	}
	h, ok := i.has(l.Token())
	return ok && h.Shared
}

func (l *Lock) start(ctx context.Context, s *session) {
	_ = s.waitFor(ctx, 0) // RMD would wait for members otherwise
	if l.Token() == 0 {
		_ = l.takeMark(ctx, s) // a connection that is lost here is made again by keep
	}
	l.turn <- s
	l.beside <- nil
	var keeping context.Context
	keeping, l.quit = context.WithCancel(ctx)
	l.keeping.Go(func() { l.keep(keeping) })
}

// granted takes in what the server said of the hold.
func (l *Lock) granted(g grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.token != 0 {
		l.token = g.token
	}
	l.renewed, l.age = time.Now(), g.expires
}

// Path is the lock's name as the server quoted it.
func (l *Lock) Path() string { return l.path }

// Token is the fencing token; 0 from a server that has none. It grows when the hold had to be taken up again after a disconnect.
func (l *Lock) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Expires is when the server will end the lock; zero if it never does, or does not say.
func (l *Lock) Expires() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.age == 0 {
		return time.Time{}
	}
	return l.renewed.Add(l.age)
}

// Done is closed when the lock is lost or was released.
func (l *Lock) Done() <-chan struct{} { return l.life.Done() }

// Err is why Done was closed: nil before that and after Release; else it matches ErrLost or ErrUnknown.
func (l *Lock) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// finish closes Done; the first reason counts. nil: it was released.
func (l *Lock) finish(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.over, l.err = true, why
	l.end()
}

// acquire waits for the turn. It fails when ctx ends or the lock is over.
func (l *Lock) acquire(ctx context.Context) (*session, error) {
	select {
	case <-l.Done():
		return nil, l.gone()
	default:
	}
	select {
	case s := <-l.turn:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.Done():
		return nil, l.gone()
	}
}

// gone is the error of what is asked of a lock that is over.
func (l *Lock) gone() error {
	if err := l.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s was released", ErrLost, l.path)
}

// hand puts the connection back, which may be another one by now.
func (l *Lock) hand(s *session) {
	l.mu.Lock()
	l.current = s
	l.mu.Unlock()
	l.turn <- s
}

// cut ends whatever the connection is used for.
func (l *Lock) cut(why error) {
	l.mu.Lock()
	s := l.current
	l.mu.Unlock()
	s.cut(why)
	s.interrupt(why)
}
