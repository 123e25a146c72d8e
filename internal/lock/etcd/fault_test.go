//go:build linux

package etcd

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// after has f called when a transaction has been made, for its error; the first time only.
func after(f func(again func() error) error) grpc.UnaryClientInterceptor {
	done := false
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, conn, opts...)
		if done || err != nil || method != "/etcdserverpb.KV/Txn" {
			return err
		}
		done = true
		return f(func() error { return invoke(ctx, method, request, reply, conn, opts...) })
	}
}

// The one that reaches the quota is made, and etcd says that it has no space.
func TestNoSpaceIsNotBelieved(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	active.halt()
	s.intercept(c, 0, after(func(func() error) error { return rpctypes.ErrGRPCNoSpace }))
	token := s.Acquire(active, "/a_lock", "ada")
	if record := s.HeldBy(active, "/a_lock", "ada"); record.Revision != token {
		t.Errorf("got %+v, want token %d", record, token)
	}
}

// The library does so where a member says that it has cancelled the request.
func TestATransactionThatIsSentTwiceIsMadeOnce(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	active.halt()
	s.intercept(c, 0, after(func(again func() error) error { return again() }))
	token := s.Acquire(active, "/a_lock", "ada")
	if record := s.HeldBy(active, "/a_lock", "ada"); record.Revision != token {
		t.Errorf("got %+v, want token %d", record, token)
	}
	s.Release(active, "/a_lock", token)
}

func TestADatabaseThatIsFullRefusesChanges(t *testing.T) {
	s := newScene(t, 1, "--quota-backend-bytes", "16777216")
	c := s.open(s.options())
	active := s.campaign(c)
	token := s.Acquire(active, "/a_lock", "ada")
	fill := strings.Repeat("x", 1<<20)
	s.until("it is full", func() bool {
		return errors.Is(c.members.once(t.Context(), func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.Put(ctx, "fill", fill)
			return err
		}), rpctypes.ErrNoSpace)
	})
	if _, err := s.Commit(active, "/b_lock", 0, s.Hold("ada")); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, lock.ErrUncertain) {
		t.Errorf("a grant: %v", err)
	}
	if _, err := s.Commit(active, "/a_lock", token); !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, lock.ErrUnrecorded) {
		t.Errorf("a release: %v", err)
	}
	s.HeldBy(active, "/b_lock", "")
	s.until("it is not ready", func() bool { return errors.Is(active.Ready(), syscall.ENOSPC) })
	var logged notes
	o := s.options()
	o.Log = slog.New(slog.NewTextHandler(&logged, nil))
	if s.open(o); logged.say("NOSPACE") != 1 {
		t.Error("nobody is warned")
	}
	s.must(c, func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.Delete(ctx, "fill")
		if err == nil {
			_, err = client.Compact(ctx, resp.Header.Revision)
		}
		if err == nil {
			_, err = client.Defragment(ctx, s.etcd.Endpoints()[0])
		}
		if err == nil {
			_, err = client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
		}
		return err
	})
	s.until("it is ready", func() bool { return active.Ready() == nil })
	s.Release(active, "/a_lock", token)
}

// etcd forgets tokens of its users. They are asked for again.
func TestAUserWithAPassword(t *testing.T) {
	s := newScene(t, 1, "--auth-token-ttl", "1")
	o := s.options()
	plain := s.open(o)
	s.must(plain, func(ctx context.Context, client *clientv3.Client) error {
		_, role := client.RoleAdd(ctx, "root")
		_, user := client.UserAdd(ctx, "root", "secret")
		_, grant := client.UserGrantRole(ctx, "root", "root")
		_, enable := client.AuthEnable(ctx)
		return errors.Join(role, user, grant, enable)
	})
	o.User, o.Password = "root", "wrong"
	if c, err := Open(t.Context(), o); err == nil {
		c.Close()
		t.Error("a wrong password opens it")
	}
	o.Password = "secret"
	active := s.campaign(s.open(o))
	token := s.Acquire(active, "/a_lock", "ada")
	active.halt() // its requests would keep the token
	time.Sleep(3 * time.Second)
	s.Release(active, "/a_lock", token)
	s.resign(active)
	c := s.open(o)
	active = s.campaign(c)
	if _, err := active.Get(t.Context(), "/a_lock"); err != nil {
		t.Error(err)
	}
	// A server that etcd does not know any more ends: another one may be active, and its next start reads the new password.
	s.must(c, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.UserChangePassword(ctx, "root", "other")
		return err
	})
	if err := s.over(active); !errors.Is(err, ErrDeposed) {
		t.Error(err)
	}
}
