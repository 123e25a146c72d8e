package journal

import (
	"errors"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestHistoryOfAFileSaysWhoPublishedIt(t *testing.T) {
	sc := newScene(t)
	store := sc.mustOpen()
	owner := lock.Owner{Account: "phoneacc", Address: "10.0.0.5", Session: 1<<32 | 3}
	token, err := store.Commit(t.Context(), lock.Change{Name: "/phone_lock", Cause: lock.CauseAcquire, By: owner, Holds: []lock.Hold{{Owner: owner}}})
	if err != nil {
		t.Fatal(err)
	}
	p := lock.Publication{Lock: "/phone_lock", Token: token, By: owner, File: "/phone.tsv", Bytes: 3, SHA256: "ba78", Note: "done"}
	if err := store.Published(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []lock.Publication{{Lock: "/l", Token: 1}, {Lock: "/l", File: "/f"}, {Token: 1, File: "/f"}} {
		if err := store.Published(t.Context(), bad); err == nil {
			t.Errorf("%+v is written down", bad)
		}
	}
	check := func(when string) {
		t.Helper()
		var file, name []lock.Entry
		for e, err := range History(sc.state, "/phone.tsv") {
			if err != nil {
				t.Fatal(err)
			}
			file = append(file, e)
		}
		for e, err := range History(sc.state, "/phone_lock") {
			if err != nil {
				t.Fatal(err)
			}
			name = append(name, e)
		}
		if len(file) != 1 || len(name) != 2 || name[0].Cause != lock.CauseAcquire {
			t.Fatalf("%s: %+v, %+v", when, file, name)
		}
		for _, e := range []lock.Entry{file[0], name[1]} {
			if e.Cause != lock.CausePublish || e.Name != "/phone_lock" || e.Token != token || e.By != owner || e.File != "/phone.tsv" ||
				e.Bytes != 3 || e.SHA256 != "ba78" || e.Note != "done" || e.At.Wall.IsZero() || len(e.Holds) > 0 {
				t.Errorf("%s: %+v", when, e)
			}
		}
	}
	check("at once")
	store = sc.restart(store)
	check("after a restart")
	// No record changes by it.
	if got := sc.Records(store)["/phone_lock"]; len(got.Holds) != 1 || got.Revision != token || got.Holds[0].Token != token {
		t.Errorf("%+v", got)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Published(t.Context(), p); !errors.Is(err, lock.ErrClosed) {
		t.Error(err)
	}
}
