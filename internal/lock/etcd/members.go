package etcd

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// members are those of etcd, with a client for each. A client with several endpoints would go on sending every third request to a
// member that hangs (etcd#10816).
type members struct {
	timeout time.Duration // of one request
	config  clientv3.Config
	all     []*member
	cluster atomic.Uint64 // etcd's id of it; 0: not known yet

	mu      sync.Mutex
	current int // index of the member that gets the requests
}

type member struct {
	endpoint string

	// mu is held while the client is made, which requests a token from the member if there is a user.
	mu     sync.Mutex
	client *clientv3.Client // nil: not made yet
	closed bool
}

// call is a request to one member.
type call func(ctx context.Context, client *clientv3.Client) error

func newMembers(o *Options) *members {
	m := &members{timeout: o.RequestTimeout}
	m.config = clientv3.Config{
		TLS: o.TLS, Username: o.User, Password: o.Password,
		DialTimeout: o.RequestTimeout, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		MaxUnaryRetries: 1, // the library sends a transaction twice if the member reports that it cancelled it
		Logger:          zap.NewNop(),
		DialOptions: []grpc.DialOption{
			// gRPC would wait up to two minutes before it tries again a member that was away.
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 3 * o.RequestTimeout, Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			}}),
			// The library has requests wait for a member that is away.
			grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
				invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if err := invoke(ctx, method, request, reply, conn, append(opts, grpc.WaitForReady(false))...); err != nil {
					return err
				}
				return m.known(reply)
			}),
		},
	}
	for _, endpoint := range o.Endpoints {
		m.all = append(m.all, &member{endpoint: endpoint})
	}
	return m
}

// errOtherCluster is what an answer of a member of another cluster becomes: two servers would be active, one in each cluster. The library
// does not try again after it.
var errOtherCluster = status.Error(codes.FailedPrecondition, "a member of another cluster of etcd")

// known returns an error for a reply of another cluster.
func (m *members) known(reply any) error {
	r, ok := reply.(interface{ GetHeader() *pb.ResponseHeader })
	if want := m.cluster.Load(); ok && want != 0 && r.GetHeader() != nil && r.GetHeader().ClusterId != want {
		return errOtherCluster
	}
	return nil
}

// dial makes a client of a member, all requests of which end with ctx.
func (m *members) dial(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	config := m.config
	config.Context, config.Endpoints = ctx, []string{endpoint}
	return clientv3.New(config)
}

// use returns the client of a member.
func (m *members) use(i int) (*clientv3.Client, error) {
	one := m.all[i]
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.closed {
		return nil, lock.ErrClosed
	}
	if one.client == nil {
		client, err := m.dial(context.Background(), one.endpoint)
		if err != nil {
			return nil, err
		}
		one.client = client
	}
	return one.client, nil
}

func (m *members) pick() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// leave switches from a member to the next one, unless that has happened already.
func (m *members) leave(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == i {
		m.current = (i + 1) % len(m.all)
	}
}

// once sends a request to one member, and waits for the request timeout at most. If the member does not answer, later requests go to the next one.
func (m *members) once(ctx context.Context, f call) error {
	i := m.pick()
	client, err := m.use(i)
	if err == nil {
		ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), m.timeout)
		defer cancel()
		if err = f(ctx, client); errors.Is(err, rpctypes.ErrInvalidAuthToken) {
			err = f(ctx, client) // the library has requested a new token
		}
	}
	if silent(err) {
		m.leave(i)
	}
	return err
}

// do sends a request to one member after the other until one answers. f may be executed several times.
func (m *members) do(ctx context.Context, f call) (err error) {
	for range m.all {
		if err = m.once(ctx, f); !silent(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// txn makes a transaction as [members.do] does. It must be one that may be made twice.
func (m *members) txn(ctx context.Context, compare []clientv3.Cmp, then, otherwise []clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	err = m.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		resp, err = client.Txn(ctx).If(compare...).Then(then...).Else(otherwise...).Commit()
		return err
	})
	return resp, err
}

func (m *members) get(ctx context.Context, key string, opts ...clientv3.OpOption) (resp *clientv3.GetResponse, err error) {
	err = m.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		resp, err = client.Get(ctx, key, opts...)
		return err
	})
	return resp, err
}

func (m *members) close() {
	for _, one := range m.all {
		one.mu.Lock()
		if one.client != nil {
			one.client.Close()
		}
		one.client, one.closed = nil, true
		one.mu.Unlock()
	}
}

// silent reports whether the member did not answer, or another one may do better.
func silent(err error) bool {
	var known rpctypes.EtcdError
	switch {
	case err == nil:
		return false
	case errors.As(err, &known):
		return known.Code() == codes.Unavailable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errOtherCluster):
		return true
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// isAnswer reports whether etcd itself has answered with the error.
func isAnswer(err error) bool {
	var known rpctypes.EtcdError
	return errors.As(err, &known)
}

// Reason returns the cause of an error of a request to etcd in words for the operator, with the remedy if there is one.
func Reason(err error) string {
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return "etcd refuses its user and password"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return "etcd refuses changes: its user has no right to read and write the keys below etcd.prefix"
	case errors.Is(err, rpctypes.ErrNoSpace):
		return errNoSpace
	case errors.Is(err, rpctypes.ErrNoLeader):
		return "etcd has no leader"
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return "etcd refuses changes: a request is larger than its --max-request-bytes, which must be 1.5 MiB at least"
	case isAnswer(err):
		return "etcd refuses changes: " + err.Error()
	}
	return "etcd does not answer"
}

// plainError is an error without the words that gRPC puts around it.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }

// plain returns an error without the words that gRPC puts around it: "dial tcp 10.0.0.1:2379: connect: connection refused".
func plain(err error) error {
	var known rpctypes.EtcdError
	s, ok := status.FromError(err)
	if err == nil || !ok || errors.As(err, &known) {
		return err
	}
	text := s.Message()
	if quoted, ok := strings.CutPrefix(text, "connection error: desc = "); ok {
		if inner, err := strconv.Unquote(quoted); err == nil {
			text = strings.TrimPrefix(strings.TrimPrefix(inner, "transport: "), "Error while dialing: ")
		}
	}
	return &plainError{text, err}
}

// pause waits, and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
