//go:build linux

package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Tokens are larger than the raised base and the journal's. A term skips the tokens that the term before reserved.
func TestTokensAreLargerThanTheBaseAndTheJournals(t *testing.T) {
	s := newScene(t, 1)
	o := s.options()
	o.After = 500
	c := s.open(o)
	active := s.campaign(c)
	held := s.acquire(active, "/held_lock")
	if held.Token != 501 {
		t.Errorf("token %d is the first one after a journal's 500", held.Token)
	}
	if _, err := c.RaiseBase(t.Context(), 10); !errors.Is(err, ErrActive) {
		t.Errorf("the base is raised while a server is active: %v", err)
	}
	before := active.Generation()
	s.resign(active)
	floor, err := c.RaiseBase(t.Context(), 1<<40)
	if err != nil || floor != 500+tokenBlock+1<<40 {
		t.Fatal(floor, err)
	}
	active = s.campaign(c)
	if loaded, err := active.Load(t.Context()); err != nil || loaded.Last != floor || len(loaded.Holds) != 1 || loaded.Holds[0].Token != held.Token {
		t.Errorf("loaded %+v, %v", loaded, err)
	}
	// Otherwise the unfinished uploads of the terms after the backup would not be those of earlier terms.
	if got := active.Generation(); got != before+restoredTerms+1 {
		t.Errorf("term %d follows term %d and a restore", got, before)
	}
}

// No token is granted before its block is in etcd.
func TestTokensAreReservedBeforeUse(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	if active.Room(tokenBlock + 1) {
		t.Error("there is room beyond the block")
	}
	for active.token < 3*tokenBlock/2 {
		records := make([]lock.Record, 0, 1000)
		for range 500 {
			r := active.grant("/a_lock")
			if err := active.MakeRoom(t.Context(), r.Hold.Token); err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
		}
		for _, r := range records {
			records = append(records, active.endOf(r.Hold))
		}
		if err := s.commit(active, records...); err != nil {
			t.Fatal(err)
		}
		kv, err := c.get(t.Context(), c.keys.tokens())
		if end := lock.Token(parseDecimal(kv)); err != nil || end < active.token {
			t.Fatalf("token %d was given, and %d are reserved: %v", active.token, end, err)
		}
	}
}

// A start loads more locks than one reply of etcd contains.
func TestManyLocksAreLoaded(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	var records []lock.Record
	for i := range pageSize + 500 {
		records = append(records, active.grant(lock.Name(fmt.Sprintf("/many/%07d_lock", 9999-i))))
	}
	if err := s.commit(active, records...); err != nil {
		t.Fatal(err)
	}
	s.resign(active)
	got, err := s.campaign(c).Load(t.Context())
	if err != nil || len(got.Holds) != len(records) {
		t.Fatalf("%d locks, %v", len(got.Holds), err)
	}
	for i, h := range got.Holds {
		if want := records[i].Hold; h.Name != want.Name || h.Token != want.Token || h.Acquired.Boot != want.Acquired.Boot {
			t.Fatalf("%d: got %+v, want %+v", i, h, want)
		}
	}
}

// Resign returns an error if the lease may still be there, because the next server then waits for its end.
func TestResignReportsAFailedHandOver(t *testing.T) {
	s := newScene(t, 1)
	c := s.open(s.options())
	active := s.campaign(c)
	active.halt()
	s.intercept(c, 0, func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if _, revokes := request.(*pb.LeaseRevokeRequest); revokes {
			return status.Error(codes.PermissionDenied, "not allowed")
		}
		return invoke(ctx, method, request, reply, conn, opts...)
	})
	if err := active.Resign(t.Context()); err == nil || !strings.Contains(err.Error(), "handing over") {
		t.Errorf("Resign: %v", err)
	}
}
