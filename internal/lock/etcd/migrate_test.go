//go:build linux

package etcd

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/etcdtest"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func collect(t *testing.T, history iter.Seq2[lock.Entry, error]) (entries []lock.Entry) {
	t.Helper()
	for e, err := range history {
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

func entries(all []lock.Entry, err error) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(lock.Entry{}, err)
		}
	}
}

func TestMoves(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	ctx := context.Background()

	s := sceneOn(t, etcd)
	from := s.open(s.options())
	server := s.campaign(from)
	s.release(server, s.acquire(server, "/gone_lock"))
	held := s.acquire(server, "/a_lock")
	s.acquire(server, "/b_lock")
	file := &lock.Publication{Path: "/a.tsv", Bytes: 7}
	if err := s.commit(server, lock.Record{Kind: lock.Published, Cause: lock.CausePublish, Hold: held, By: held.Owner, At: s.clock.Now(), File: file}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := from.Export(ctx); !errors.Is(err, ErrActive) {
		t.Errorf("export while a server is active: %v", err)
	}
	if err := from.Import(ctx, lock.Loaded{}, entries(nil, nil)); !errors.Is(err, ErrActive) && !errors.Is(err, ErrNotEmpty) {
		t.Errorf("import while a server is active: %v", err)
	}
	s.resign(server)
	loaded, lines, err := from.Export(ctx)
	if err != nil {
		t.Fatal(err)
	}
	history := collect(t, lines)
	if len(loaded.Holds) != 2 || len(history) != 5 || loaded.Last < server.token || loaded.Start != server.Generation() {
		t.Errorf("exported %+v, %+v", loaded, history)
	}
	last := loaded.Last

	t.Run("an import that was cut short is closed until it is done again", func(t *testing.T) {
		s := sceneOn(t, etcd)
		to := s.open(s.options())
		many := make([]lock.Entry, 0, 3000)
		for len(many) < cap(many)-len(history) {
			many = append(many, history...)
		}
		broken := errors.New("the source is broken")
		if err := to.Import(ctx, loaded, entries(many, broken)); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		var closed *ClosedError
		if _, err := to.Campaign(ctx); !errors.As(err, &closed) || !strings.Contains(err.Error(), `call "ftplockd migrate" again`) {
			t.Errorf("campaign: %v", err)
		}
		if _, _, err := to.Export(ctx); !errors.As(err, &closed) {
			t.Errorf("export: %v", err)
		}
		if err := to.Import(ctx, loaded, entries(history, nil)); err != nil {
			t.Fatal(err)
		}
		if again := collect(t, to.entries(ctx, nil)); !reflect.DeepEqual(again, history) {
			t.Errorf("the history is\n%+v, want\n%+v", again, history)
		}
		s.held(s.campaign(to).c, "/a_lock", "/b_lock")
	})

	// These change what was exported.
	t.Run("a server that was active meanwhile is noticed", func(t *testing.T) {
		s.resign(s.campaign(from))
		if err := from.Retire(ctx, last, "its locks have moved"); !errors.Is(err, ErrActive) {
			t.Errorf("retire: %v", err)
		}
		if loaded, _, err = from.Export(ctx); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("what has moved away is closed until locks come back", func(t *testing.T) {
		if err := from.Import(ctx, lock.Loaded{}, entries(nil, nil)); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("import over locks: %v", err)
		}
		if err := from.Retire(ctx, loaded.Last, "its locks have moved"); err != nil {
			t.Fatal(err)
		}
		if _, err := from.Campaign(ctx); err == nil || !strings.HasSuffix(err.Error(), " is closed: its locks have moved") {
			t.Errorf("campaign: %v", err)
		}
		if err := from.Import(ctx, lock.Loaded{Holds: loaded.Holds[:1], Last: 5, Start: 1}, entries(history[:2], nil)); err != nil {
			t.Fatal(err)
		}
		server := s.campaign(from)
		s.held(from, "/a_lock")
		if server.before < loaded.Last || server.Generation() <= loaded.Start {
			t.Errorf("it goes on after token %d in epoch %d", server.before, server.Generation())
		}
		if got := len(collect(t, from.entries(ctx, nil))); got != 2 {
			t.Errorf("%d entries, want 2", got)
		}
	})
}

// The transactions by which an import removes what was there are delivered a second time when it has come to its end, and all others at once.
func TestARemovalThatComesLateRemovesNothing(t *testing.T) {
	s := newScene(t, 1)
	ctx := t.Context()
	o := s.options()
	o.Endpoints = append(o.Endpoints, o.Endpoints[0])
	c := s.open(o)
	before := s.campaign(c)
	s.acquire(before, "/a_lock")
	s.resign(before)
	loaded, lines, err := c.Export(ctx)
	if err != nil {
		t.Fatal(err)
	}
	history := collect(t, lines)
	if err := c.Retire(ctx, loaded.Last, "moved"); err != nil {
		t.Fatal(err)
	}
	removals := 0
	late := make(chan func() error, 2)
	s.intercept(c, 0, func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		txn, ok := request.(*pb.TxnRequest)
		if !ok || len(txn.Success) == 0 || txn.Success[0].GetRequestDeleteRange() == nil {
			err := invoke(ctx, method, request, reply, conn, opts...)
			if err == nil && ok {
				err = invoke(ctx, method, request, reply, conn, opts...)
			}
			return err
		}
		removals++
		late <- func() error { return invoke(context.WithoutCancel(ctx), method, request, reply, conn, opts...) }
		return status.Error(codes.DeadlineExceeded, "held back")
	})
	c.members.prefer(0)
	if err := c.Import(ctx, loaded, entries(history, nil)); err != nil {
		t.Fatal(err)
	}
	if removals == 0 {
		t.Fatal("nothing was removed")
	}
	close(late)
	for deliver := range late {
		if err := deliver(); err != nil {
			t.Fatal(err)
		}
	}
	s.held(s.campaign(c).c, "/a_lock")
	if got := len(collect(t, c.entries(ctx, nil))); got != len(history) {
		t.Errorf("%d entries, want %d", got, len(history))
	}
}
