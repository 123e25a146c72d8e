package event

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestSinksGetEventsInOrderAndCloseWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []uint64
		b := NewBus(func(batch []Event) {
			time.Sleep(time.Millisecond)
			for _, e := range batch {
				seen = append(seen, e.Token)
			}
		})
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 25 {
					b.Publish(Event{Kind: Acquire})
				}
			})
		}
		all.Wait()
		for i := range 10 {
			b.Publish(Event{Kind: Acquire, Token: uint64(i + 1)})
		}
		b.Close()
		b.Publish(Event{Kind: Acquire})
		b.Close()
		if len(seen) != 110 {
			t.Fatalf("the sink saw %d events", len(seen))
		}
		for i, token := range seen[100:] {
			if token != uint64(i+1) {
				t.Errorf("the sink saw %v", seen[100:])
			}
		}
	})
}

func TestPublishNeverWaitsForASink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, count := make(chan struct{}), 0
		b := NewBus(func(batch []Event) {
			<-free
			count += len(batch)
		})
		b.Publish(Event{})
		time.Sleep(time.Second) // the sink hangs
		for range maxQueued + 7 {
			b.Publish(Event{})
		}
		if got := b.Dropped(); got != 7 {
			t.Errorf("%d events dropped, want 7", got)
		}
		close(free)
		b.Close()
		if count != maxQueued+1 {
			t.Errorf("the sink saw %d events", count)
		}
	})
}

func TestANilBusDropsEvents(t *testing.T) {
	var b *Bus
	b.Publish(Event{})
	b.Close()
}

func TestLogLines(t *testing.T) {
	for _, c := range []struct {
		e    Event
		want string
	}{
		{Event{Kind: Acquire, Lock: "/a_lock", Token: 7, Holder: lock.Owner{Account: "joe", Address: "192.0.2.1"}, Session: 1<<40 | 2, Waited: time.Second},
			`level=INFO msg="lock acquired" lock=/a_lock holder=joe@192.0.2.1 token=7 waited=1s session=1-2`},
		{Event{Kind: Release, Cause: "release", Lock: "/a_lock", Token: 7}, ``},
		{Event{Kind: Release, Cause: "disconnect", Lock: "/a_lock", Token: 7}, `level=INFO msg="lock ended" lock=/a_lock cause=disconnect token=7`},
		{Event{Kind: Expire, Cause: "idle", Lock: "/a\n_lock", Token: 7, Held: time.Minute, Holder: lock.Owner{Account: "joe"}},
			`level=INFO msg="lock ended" lock="/a\n_lock" cause=idle holder=joe age=1m0s token=7`},
		{Event{Kind: Discard, Cause: "other", Path: "/f", Remote: "192.0.2.1", Reason: "no 226"}, `level=WARN msg="upload discarded" path=/f bytes=0 reason="no 226" remote=192.0.2.1`},
		{Event{Kind: Publish, Path: "/a.tsv", Bytes: 3, SHA256: "ba78", Lock: "/a_lock", Token: 7, Holder: lock.Owner{Account: "joe"}, Session: 1<<40 | 2, Account: "joe"},
			`level=INFO msg="upload published" lock=/a_lock holder=joe token=7 path=/a.tsv bytes=3 sha256=ba78 session=1-2 account=joe`},
		{Event{Kind: LoginFailed, Remote: "192.0.2.1", Account: "x remote=192.0.2.9"},
			`level=WARN msg="login failed" remote=192.0.2.1 account="x remote=192.0.2.9"`},
		{Event{Kind: Reload, Reason: "line 3"}, `level=ERROR msg="reload refused, nothing has changed" reason="line 3"`},
	} {
		var b bytes.Buffer
		sink := Log(&b, func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) })
		c.e.Time = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
		sink([]Event{c.e})
		got := strings.TrimSpace(strings.TrimPrefix(b.String(), "time=2026-11-22T10:00:00.000Z "))
		if got != c.want {
			t.Errorf("%v:\n got %s\nwant %s", c.e.Kind, got, c.want)
		}
	}
}

func TestXferlogLines(t *testing.T) {
	at := time.Date(2026, 11, 2, 10, 0, 0, 0, time.Local)
	for _, c := range []struct {
		e    Event
		want string
	}{
		{Event{Kind: Publish, Path: "/a b\n\xe9", Bytes: 12, Took: 2600 * time.Millisecond, Remote: "192.0.2.1", Account: "joe"},
			"Mon Nov  2 10:00:00 2026 3 192.0.2.1 12 /a_b_\xe9 b _ i r joe ftp 0 * c\n"},
		{Event{Kind: Discard, Path: "/a", ASCII: true, Remote: "::1", Account: "joe"},
			"Mon Nov  2 10:00:00 2026 1 ::1 0 /a a _ i r joe ftp 0 * i\n"},
		{Event{Kind: Download, Path: "/a", Bytes: 5, Remote: "::1", Account: "joe"}, "Mon Nov  2 10:00:00 2026 1 ::1 5 /a b _ o r joe ftp 0 * c\n"},
		{Event{Kind: Download, Path: "/a", Reason: "cut", Remote: "::1", Account: "joe"}, "Mon Nov  2 10:00:00 2026 1 ::1 0 /a b _ o r joe ftp 0 * i\n"},
		{Event{Kind: Acquire, Lock: "/a_lock"}, ""},
	} {
		var b strings.Builder
		c.e.Time = at
		Xferlog(&b, func(err error) { t.Error(err) })([]Event{c.e})
		if b.String() != c.want {
			t.Errorf("%v:\n got %q\nwant %q", c.e.Kind, b.String(), c.want)
		}
	}
	var got error
	Xferlog(full{}, func(err error) { got = err })([]Event{{Kind: Publish}})
	if !errors.Is(got, errFull) {
		t.Errorf("failed was called with %v", got)
	}
}

var errFull = errors.New("no space left on device")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
