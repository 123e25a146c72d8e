package journal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

func TestStorePassesTheSuite(t *testing.T) {
	for _, directories := range []string{"none", "each step by itself", "some steps in one"} {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprintf("directories=%v,durable=%v", directories, durable), func(t *testing.T) {
				locktest.TestStore(t, func(t *testing.T) lock.Store {
					s := newScene(t)
					s.options = func(o *Options) {
						o.Durable = durable
						switch directories {
						case "none":
							o.FS = nil
						case "each step by itself":
							o.FS = s.tree
						}
					}
					return s.mustOpen()
				})
			})
		}
	}
}

func TestASecondServerIsRefused(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	_, err := s.open()
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.PID != fmt.Sprint(os.Getpid()) {
		t.Fatalf("got %v", err)
	}
	if want := fmt.Sprintf("another ftplockd (pid %d) uses this state directory", os.Getpid()); err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	s.mustOpen()
}

func TestGenerationsGrowWithEveryStart(t *testing.T) {
	s := newScene(t)
	for want := uint32(1); want <= 5; want++ {
		store := s.mustOpen()
		if got := store.Generation(); got != want {
			t.Errorf("generation %d, want %d", got, want)
		}
		if want%2 == 0 {
			s.crash(store)
		} else if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACleanRestartGoesOnWithTheNextToken(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	a := s.acquire(store, "/a_lock", "ada")
	b := s.acquire(store, "/b_lock", "ben")
	s.release(store, "/b_lock", b)
	store = s.restart(store)
	if got := s.heldBy(store, "/a_lock", "ada"); got.Revision != a || got.Holds[0].Token != a {
		t.Errorf("got %+v, want token %d", got, a)
	}
	s.heldBy(store, "/b_lock", "")
	if got := s.acquire(store, "/c_lock", "eve"); got != b+2 { // the release was b+1
		t.Errorf("token %d after the restart, want %d", got, b+2)
	}
}

func TestTokensGrowOverCrashesAlsoWithoutSync(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.Durable = false }
	var last lock.Token
	for range 5 {
		store := s.mustOpen()
		for range 10 {
			token := s.acquire(store, "/a_lock", "ada")
			if token <= last {
				t.Fatalf("token %d after %d", token, last)
			}
			last = token
			s.release(store, "/a_lock", token)
		}
		s.powerFailure(store)
	}
}

func TestMoreTokensThanABlock(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.Durable, o.FS = false, nil }
	store := s.mustOpen()
	var last lock.Token
	for range tokenBlock + 10 {
		last = s.acquire(store, "/a_lock", "ada")
		s.release(store, "/a_lock", last)
	}
	s.powerFailure(store)
	if got := s.acquire(s.mustOpen(), "/a_lock", "ada"); got <= last {
		t.Errorf("token %d after %d", got, last)
	}
}

func TestAClosedStoreRefuses(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	if err := errors.Join(store.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.commit(store, "/a_lock", 0, s.hold("ada")); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("Commit: %v", err)
	}
	for _, err := range store.All(context.Background()) {
		if !errors.Is(err, lock.ErrClosed) {
			t.Errorf("All: %v", err)
		}
	}
	for range store.Watch(context.Background()) {
		t.Error("Watch goes on")
	}
}

func TestCloseEndsWatch(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	done := make(chan struct{})
	events := store.Watch(context.Background())
	go func() {
		defer close(done)
		for range events {
		}
	}()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestNamesThatCannotBeLocksAreRefused(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	for _, name := range []lock.Name{"", "/", "a", "/a/", "//a", "/a/../b", "/.", "/a/."} {
		if _, err := s.commit(store, name, 0, s.hold("ada")); !errors.Is(err, errName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestErrorsShowFTPPathsOnly(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.write("/file")
	s.mkdir("/sealed")
	for _, name := range []lock.Name{
		"/no/parent", "/file", "/file/below", "/file/far/below", lock.Name("/" + strings.Repeat("x", 300)), "/nul\x00",
	} {
		_, err := s.commit(store, name, 0, s.hold("ada"))
		if err == nil {
			t.Fatalf("%q can be made", name)
		}
		if strings.Contains(err.Error(), s.tree.root) || strings.Contains(err.Error(), s.state) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := s.records(store); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
}

func TestWithoutAClockOpenFails(t *testing.T) {
	if _, err := Open(t.Context(), Options{Dir: t.TempDir()}); err == nil {
		t.Error("no error")
	}
}
