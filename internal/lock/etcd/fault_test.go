//go:build linux

package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestADatabaseThatIsFullRefusesChanges(t *testing.T) {
	s := newScene(t, 1, "--quota-backend-bytes", "16777216")
	c := s.open(s.options())
	active := s.campaign(c)
	h := s.acquire(active, "/a_lock")
	fill := strings.Repeat("x", 1<<20)
	s.until("etcd is full", func() bool {
		return errors.Is(c.members.sendToOne(t.Context(), func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.Put(ctx, "fill", fill)
			return err
		}), rpctypes.ErrNoSpace)
	})
	s.until("it is suspended", func() bool { return isSuspended(active.Ready()) && errors.Is(active.Valid(), lock.ErrFull) })
	if err := active.MakeRoom(t.Context(), active.reserved+1); !errors.Is(err, lock.ErrFull) {
		t.Errorf("MakeRoom: %v", err)
	}
	lost := active.grant("/b_lock")
	granted, ended := active.Append([]lock.Record{lost}), make(chan error)
	go func() { ended <- s.commit(active, active.endOf(lost.Hold)) }() // each waits for ten seconds
	if err := active.Wait(t.Context(), granted, true); !errors.Is(err, lock.ErrUncertain) || !errors.Is(err, lock.ErrFull) || isSuspended(err) {
		t.Errorf("a grant: %v", err)
	}
	if err := <-ended; !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("its end: %v", err)
	}
	s.held(c, "/a_lock")
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
	s.release(active, h)
	s.held(c)
}

// The server sends a transaction again at once, except after a refusal. Replies, the page and /readyz have the reason.
func TestRefusalsAndReasons(t *testing.T) {
	for _, c := range []struct {
		err     error
		refusal bool
		reason  string
	}{
		{context.DeadlineExceeded, false, "etcd does not answer"},
		{rpctypes.ErrTimeout, false, "etcd refuses changes: etcdserver: request timed out"},
		{rpctypes.ErrAuthFailed, false, "etcd refuses its user and password"},
		{rpctypes.ErrPermissionDenied, true, "etcd refuses changes: its user has no right to read and write the keys below etcd.prefix"},
		{rpctypes.ErrNoSpace, true, "etcd has no space left"},
		{rpctypes.ErrNoLeader, true, "etcd has no leader"},
		{rpctypes.ErrTooManyRequests, true, "etcd refuses changes: etcdserver: too many requests"},
		{rpctypes.ErrRequestTooLarge, true, "etcd refuses changes: a request is larger than its --max-request-bytes, which must be 1.5 MiB at least"},
		{&FormatError{Found: "3"}, false, (&FormatError{Found: "3"}).Error()},
	} {
		if refusal, reason := isRefusal(c.err), Reason(c.err); refusal != c.refusal || reason != c.reason {
			t.Errorf("%v: refusal %v, %q; want %v, %q", c.err, refusal, reason, c.refusal, c.reason)
		}
	}
}

// A server needs no rights but those to the keys below its prefix. etcd drops the tokens of its users at a restart; the client requests new ones.
func TestEtcdWithPasswords(t *testing.T) {
	s := newScene(t, 1, "--bcrypt-cost", "4")
	s.ttl = 10 * time.Second // the server renews its lease every 2.5 s
	o := s.options()
	all, above := o.Prefix, clientv3.GetPrefixRangeEnd(o.Prefix)
	s.must(s.open(o), func(ctx context.Context, client *clientv3.Client) error {
		_, role := client.RoleAdd(ctx, "root")
		_, user := client.UserAdd(ctx, "root", "secret")
		_, grant := client.UserGrantRole(ctx, "root", "root")
		_, servers := client.RoleAdd(ctx, "servers")
		_, permit := client.RoleGrantPermission(ctx, "servers", all, above, clientv3.PermissionType(clientv3.PermReadWrite))
		_, server := client.UserAdd(ctx, "server", "secret")
		_, member := client.UserGrantRole(ctx, "server", "servers")
		_, enable := client.AuthEnable(ctx)
		return errors.Join(role, user, grant, servers, permit, server, member, enable)
	})
	o.User, o.Password = "root", "secret"
	root := s.open(o)
	o.User, o.Password = "server", "wrong"
	wrong := Open(o)
	if err := wrong.Check(t.Context()); !errors.Is(err, rpctypes.ErrAuthFailed) {
		t.Errorf("with a wrong password: %v", err)
	}
	wrong.Close()
	o.Password = "secret"
	active := s.campaign(s.open(o))
	h := s.acquire(active, "/a_lock")
	s.etcd.Restart(0)
	s.etcd.Ready()
	s.release(active, h)
	s.resign(active)
	active = s.campaign(s.open(o))
	s.acquire(active, "/a_lock")
	s.must(root, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.RoleRevokePermission(ctx, "servers", all, above)
		return err
	})
	s.until("it reports that its user has no right", func() bool {
		err := active.Ready()
		return isSuspended(err) && strings.Contains(err.Error(), Reason(rpctypes.ErrPermissionDenied))
	})
	// A server whose password etcd refuses ends: another one may be active, and its next start reads the new password.
	s.must(root, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.UserChangePassword(ctx, "server", "other")
		return err
	})
	if err := s.over(active); !errors.Is(err, ErrDeposed) {
		t.Error(err)
	}
}
