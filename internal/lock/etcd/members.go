package etcd

import (
	"context"
	"errors"
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

// members are the members of etcd, with one client each. A client with several endpoints keeps sending every third request to a member
// that hangs (etcd#10816).
type members struct {
	timeout time.Duration // of one request
	config  clientv3.Config
	all     []*member
	cluster atomic.Uint64 // the id that etcd gave the cluster; 0: not known yet
	current atomic.Int32  // index of the member that gets the requests
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
		MaxUnaryRetries: 1, // otherwise the library repeats a transaction that the member reports as cancelled
		Logger:          zap.NewNop(),
		DialOptions: []grpc.DialOption{
			// By default gRPC waits up to two minutes before it connects again.
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 3 * o.RequestTimeout, Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			}}),
			grpc.WithChainUnaryInterceptor(m.invoke),
		},
	}
	for _, endpoint := range o.Endpoints {
		m.all = append(m.all, &member{endpoint: endpoint})
	}
	return m
}

// errOtherCluster replaces the reply of a member of another cluster. Otherwise two servers could be active, one in each cluster. The
// library does not repeat a request with this error.
var errOtherCluster = status.Error(codes.FailedPrecondition, "a member of another cluster of etcd")

// invoke sends a request. It fails at once if the member is not connected, where the library waits. It checks that the reply comes from
// the right cluster.
func (m *members) invoke(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := invoke(ctx, method, request, reply, conn, append(opts, grpc.WaitForReady(false))...); err != nil {
		return err
	}
	r, ok := reply.(interface{ GetHeader() *pb.ResponseHeader })
	if want := m.cluster.Load(); ok && want != 0 && r.GetHeader() != nil && r.GetHeader().ClusterId != want {
		return errOtherCluster
	}
	return nil
}

// clientOf returns the client of a member.
func (m *members) clientOf(i int) (*clientv3.Client, error) {
	one := m.all[i]
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.closed {
		return nil, lock.ErrClosed
	}
	if one.client == nil {
		config := m.config
		config.Endpoints = []string{one.endpoint}
		client, err := clientv3.New(config)
		if err != nil {
			return nil, err
		}
		one.client = client
	}
	return one.client, nil
}

// sendToOne sends a request to one member, and waits for its reply until the request timeout.
func (m *members) sendToOne(ctx context.Context, f call) error {
	return m.sendToOneWithin(ctx, m.timeout, f)
}

// sendToOneWithin sends a request to one member. If the member does not answer in time, later requests go to the next one.
func (m *members) sendToOneWithin(ctx context.Context, timeout time.Duration, f call) error {
	i := m.current.Load()
	client, err := m.clientOf(int(i))
	if err == nil {
		ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), timeout)
		defer cancel()
		if err = f(ctx, client); errors.Is(err, rpctypes.ErrInvalidAuthToken) {
			err = f(ctx, client) // the library has requested a new token
		}
	}
	if isSilent(err) {
		m.current.CompareAndSwap(i, (i+1)%int32(len(m.all)))
	}
	return err
}

// sendToAny sends a request to one member after the other until one answers. The request may be executed several times.
func (m *members) sendToAny(ctx context.Context, f call) (err error) {
	for range m.all {
		if err = m.sendToOne(ctx, f); !isSilent(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// txn sends a transaction with do.
func (m *members) txn(ctx context.Context, compare []clientv3.Cmp, then, otherwise []clientv3.Op) (resp *clientv3.TxnResponse, err error) {
	err = m.sendToAny(ctx, func(ctx context.Context, client *clientv3.Client) error {
		resp, err = client.Txn(ctx).If(compare...).Then(then...).Else(otherwise...).Commit()
		return err
	})
	return resp, err
}

func (m *members) get(ctx context.Context, key string, opts ...clientv3.OpOption) (resp *clientv3.GetResponse, err error) {
	err = m.sendToAny(ctx, func(ctx context.Context, client *clientv3.Client) error {
		resp, err = client.Get(ctx, key, opts...)
		return err
	})
	return resp, err
}

func (m *members) put(ctx context.Context, key, value string, opts ...clientv3.OpOption) error {
	return m.sendToAny(ctx, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Put(ctx, key, value, opts...)
		return err
	})
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

// isSilent reports whether the member did not answer, or cannot answer while another one may.
func isSilent(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errOtherCluster) {
		return true
	}
	var answer rpctypes.EtcdError
	if errors.As(err, &answer) {
		return answer.Code() == codes.Unavailable
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// isAnswer reports whether etcd itself returned the error.
func isAnswer(err error) bool {
	var answer rpctypes.EtcdError
	return errors.As(err, &answer)
}

// isRefusal reports whether etcd refused a transaction, so that it never applies it. Only after ErrNoSpace it may have applied it, which does
// no harm: the writer sends the same transaction again.
func isRefusal(err error) bool {
	for _, refusal := range []error{
		rpctypes.ErrNoLeader, rpctypes.ErrTooManyRequests, rpctypes.ErrNoSpace, rpctypes.ErrRequestTooLarge, rpctypes.ErrPermissionDenied,
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

func isLeaseNotFound(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// Reason returns why a request to etcd failed, in words for the operator, with the remedy if there is one.
func Reason(err error) string {
	if format, ok := errors.AsType[*FormatError](err); ok {
		return format.Error()
	}
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return "etcd refuses its user and password"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return "etcd refuses changes: its user has no right to read and write the keys below etcd.prefix"
	case errors.Is(err, rpctypes.ErrNoSpace):
		return "etcd has no space left"
	case errors.Is(err, rpctypes.ErrNoLeader):
		return "etcd has no leader"
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return "etcd refuses changes: a request is larger than its --max-request-bytes, which must be 1.5 MiB at least"
	case isAnswer(err):
		return "etcd refuses changes: " + err.Error()
	}
	return "etcd does not answer"
}

// withoutGRPC returns an error without the text that gRPC adds, such as "dial tcp 10.0.0.1:2379: connect: connection refused".
func withoutGRPC(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok || isAnswer(err) {
		return err
	}
	text := s.Message()
	if _, cause, ok := strings.Cut(text, "Error while dialing: "); ok {
		text = strings.TrimSuffix(cause, `"`)
	}
	return errors.New(text)
}

// pause waits, and reports whether ctx has not ended.
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
