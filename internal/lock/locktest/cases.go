package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// cases are the suite.
var cases = []struct {
	name string
	run  func(f *fixture)
}{
	{"acquire, release, acquire again", lifeOfALock},
	{"a conflict carries the record and changes nothing", conflictCarriesRecord},
	{"a change of what is not there is a conflict", conflictOfNothing},
	{"a release of what is not held changes nothing", releaseOfNothing},
	{"a hold is handed over", handOver},
	{"tokens grow over names and releases", tokensGrow},
	{"a hold keeps its token through changes", tokenStays},
	{"a hold comes back as it was given", fieldsSurvive},
	{"several holds share a name", sharedHolds},
	{"Get tells who holds a name", getTells},
	{"Get shares nothing with the caller", getSharesNothing},
	{"Get ends with its context", getEnds},
	{"All yields every held name", allYields},
	{"All can be left early", allLeft},
	{"what the caller does with its slices does not matter", nothingShared},
	{"a cancelled context changes nothing", cancelled},
	{"one of many wins a free name", oneWinner},
	{"one of many wins a hand-over", oneHeir},
	{"names are changed side by side", sideBySide},
	{"names are bytes", namesAreBytes},
	{"a name within a name", nested},
	{"a name too long is an error and changes nothing", tooLong},
	{"one's own changes are not watched", ownChanges},
	{"Watch ends with its context", watchEnds},
}

func lifeOfALock(f *fixture) {
	f.holders("/a")
	first := f.must("/a", 0, hold("ada"))
	f.holders("/a", "ada")
	f.must("/a", first)
	f.holders("/a")
	f.must("/a", 0, hold("ben"))
	f.holders("/a", "ben")
}

func conflictCarriesRecord(f *fixture) {
	token := f.must("/a", 0, hold("ada"))
	for _, revision := range []lock.Token{0, token - 1, token + 1} {
		for _, holds := range [][]lock.Hold{nil, {hold("ben")}} {
			record := f.conflict("/a", revision, holds...)
			if record.Revision != token || !slices.Equal(accounts(record), []string{"ada"}) {
				f.Errorf("at %d: the conflict says revision %d, held by %q; want %d and ada",
					revision, record.Revision, accounts(record), token)
			}
		}
	}
	f.holders("/a", "ada")
	f.must("/a", token)
}

func conflictOfNothing(f *fixture) {
	token := f.must("/a", 0, hold("ada"))
	released := f.must("/a", token)
	for _, revision := range []lock.Token{token, released} {
		record := f.conflict("/a", revision, hold("ben"))
		if record.Revision != 0 || len(record.Holds) != 0 {
			f.Errorf("the record of a free name is %+v, want revision 0 and no holds", record)
		}
		f.conflict("/a", revision)
	}
	f.holders("/a")
	f.must("/a", 0, hold("ben"))
}

func releaseOfNothing(f *fixture) {
	f.must("/a", 0)
	f.holders("/a")
	f.must("/a", 0, hold("ada"))
}

func handOver(f *fixture) {
	first := f.must("/a", 0, hold("ada"))
	second := f.must("/a", first, hold("ben"))
	f.holders("/a", "ben")
	if got := f.all()["/a"].Holds[0].Token; got != second {
		f.Errorf("the new hold has token %d, want %d", got, second)
	}
	f.conflict("/a", first)
	f.must("/a", second)
}

func tokensGrow(f *fixture) {
	var last lock.Token
	grows := func(token lock.Token) lock.Token {
		f.Helper()
		if token <= last {
			f.Fatalf("revision %d after %d", token, last)
		}
		last = token
		return token
	}
	for range 5 {
		for _, name := range []lock.Name{"/a", "/b", "/c"} {
			token := grows(f.must(name, 0, hold("ada")))
			if got := f.all()[name]; got.Revision != token || got.Holds[0].Token != token {
				f.Errorf("revision %d, token %d; Commit said %d", got.Revision, got.Holds[0].Token, token)
			}
			if name != "/b" {
				grows(f.must(name, token))
			}
		}
		grows(f.must("/b", f.all()["/b"].Revision))
	}
}

func tokenStays(f *fixture) {
	token := f.must("/a", 0, hold("ada"))
	kept := f.all()["/a"].Holds[0]
	kept.Renewed.Boot += time.Minute
	revision := f.must("/a", token, kept, hold("ben"))
	record := f.all()["/a"]
	if len(record.Holds) != 2 {
		f.Fatalf("%d holds, want 2", len(record.Holds))
	}
	if a, b := record.Holds[0].Token, record.Holds[1].Token; a != token || b != revision || record.Revision != revision {
		f.Errorf("tokens %d and %d at revision %d; want %d, %d at %d", a, b, record.Revision, token, revision, revision)
	}
	if record.Holds[0].Renewed.Boot != kept.Renewed.Boot {
		f.Errorf("the renewal was not kept")
	}
}

// fieldsSurvive leaves Directory out, which is the store's business.
func fieldsSurvive(f *fixture) {
	at := lock.Instant{Wall: time.Date(2024, 2, 29, 12, 0, 0, 123456789, time.UTC), Boot: -5 * time.Second, BootID: "boot"}
	want := lock.Hold{
		Owner:    lock.Owner{Account: "ad\xffa \"1\"", Address: "2001:db8::1", Session: 1<<63 + 1, Nonce: "n\x00%41"},
		Acquired: at,
		Renewed:  lock.Instant{Wall: at.Wall.Add(time.Hour), Boot: 7, BootID: "another"},
		Ended:    lock.Instant{Wall: at.Wall.Add(2 * time.Hour), Boot: 8},
		Rule: lock.Rule{
			Match: "/\xfe*", MaxAge: 1, MaxIdle: 2, OnDisconnect: lock.ReleaseOnDisconnect, Grace: 3, LockDelay: 4,
			Release: lock.ReleaseAnyone, AllowCwd: true,
		},
		Shared: true,
	}
	want.Token = f.must("/a", 0, want)
	got := f.all()["/a"].Holds[0]
	got.Directory = lock.DirectoryID{}
	for _, pair := range [][2]*lock.Instant{{&got.Acquired, &want.Acquired}, {&got.Renewed, &want.Renewed}, {&got.Ended, &want.Ended}} {
		if pair[0].Wall.Equal(pair[1].Wall) {
			pair[0].Wall = pair[1].Wall // the same moment may be said in another zone
		}
	}
	if got != want {
		f.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func sharedHolds(f *fixture) {
	one := f.must("/a", 0, hold("ada"), hold("ben"))
	record := f.all()["/a"]
	if len(record.Holds) != 2 || record.Holds[0].Token != one || record.Holds[1].Token != one {
		f.Fatalf("got %+v, want two holds with token %d", record, one)
	}
	two := f.must("/a", one, append(record.Holds, hold("eve"))...)
	f.holders("/a", "ada", "ben", "eve")
	three := f.must("/a", two, f.all()["/a"].Holds[1:]...)
	f.holders("/a", "ben", "eve")
	f.conflict("/a", two)
	f.must("/a", three)
	f.holders("/a")
}

// get asks for the record of one name, and checks who holds it.
func (f *fixture) get(name lock.Name, revision lock.Token, want ...string) lock.Record {
	f.Helper()
	record, err := f.store.Get(context.Background(), name)
	if err != nil || record.Name != name || record.Revision != revision || !slices.Equal(accounts(record), want) {
		f.Errorf("Get of %q: %+v, %v; want revision %d, held by %q", name, record, err, revision, want)
	}
	return record
}

func getTells(f *fixture) {
	f.get("/a", 0)
	f.must("/b", 0, hold("eve"))
	f.get("/a", 0)
	one := f.must("/a", 0, hold("ada"))
	if got := f.get("/a", one, "ada"); got.Holds[0].Token != one {
		f.Errorf("the hold has token %d, want %d", got.Holds[0].Token, one)
	}
	two := f.must("/a", one, f.get("/a", one, "ada").Holds[0], hold("ben"))
	got := f.get("/a", two, "ada", "ben")
	if all := f.all()["/a"]; !slices.Equal(got.Holds, all.Holds) {
		f.Errorf("Get: %+v\nAll: %+v", got, all)
	}
	f.conflict("/a", one)
	f.get("/a", two, "ada", "ben")
	f.must("/a", two)
	f.get("/a", 0)
}

func getSharesNothing(f *fixture) {
	token := f.must("/a", 0, hold("ada"))
	f.get("/a", token, "ada").Holds[0].Owner.Account = "eve"
	f.get("/a", token, "ada")
}

func getEnds(f *fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if record, err := f.store.Get(ctx, "/a"); !errors.Is(err, context.Canceled) {
		f.Errorf("Get with a cancelled context: %+v, %v", record, err)
	}
}

func allYields(f *fixture) {
	want := make(map[lock.Name]lock.Token)
	for i := range 100 {
		name := lock.Name(fmt.Sprintf("/%d", i))
		want[name] = f.must(name, 0, hold("ada"))
		if i%3 == 0 {
			f.must(name, want[name])
			delete(want, name)
		}
	}
	got := f.all()
	if len(got) != len(want) {
		f.Errorf("All yields %d names, want %d", len(got), len(want))
	}
	for name, token := range want {
		if got[name].Revision != token {
			f.Errorf("%q is at revision %d, want %d", name, got[name].Revision, token)
		}
	}
}

func allLeft(f *fixture) {
	f.must("/a", 0, hold("ada"))
	f.must("/b", 0, hold("ada"))
	for range f.store.All(context.Background()) {
		break
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var last error
	for _, err := range f.store.All(ctx) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		f.Errorf("All with a cancelled context ends with %v", last)
	}
	f.must("/c", 0, hold("ada")) // nothing is locked up
}

func nothingShared(f *fixture) {
	holds := []lock.Hold{hold("ada")}
	token := f.must("/a", 0, holds...)
	if holds[0].Token != 0 || holds[0].Owner.Account != "ada" {
		f.Errorf("Commit changed the caller's hold to %+v", holds[0])
	}
	holds[0].Owner.Account = "eve"
	f.holders("/a", "ada")
	f.all()["/a"].Holds[0].Owner.Account = "eve"
	f.holders("/a", "ada")
	f.conflict("/a", 0).Holds[0].Owner.Account = "eve"
	f.holders("/a", "ada")
	f.must("/a", token)
}

func cancelled(f *fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := f.store.Commit(ctx, lock.Change{Name: "/a", Holds: []lock.Hold{hold("ada")}, Cause: lock.CauseAcquire})
	if !errors.Is(err, context.Canceled) {
		f.Errorf("acquire with a cancelled context: %v", err)
	}
	f.holders("/a")
	token := f.must("/a", 0, hold("ben"))
	if _, err := f.store.Commit(ctx, lock.Change{Name: "/a", If: token, Cause: lock.CauseRelease}); !errors.Is(err, context.Canceled) {
		f.Errorf("release with a cancelled context: %v", err)
	}
	f.holders("/a", "ben")
}

func everyByte() string {
	var b []byte
	for c := 1; c < 256; c++ {
		if c != '/' {
			b = append(b, byte(c))
		}
	}
	return string(b)
}

func namesAreBytes(f *fixture) {
	names := []lock.Name{
		"/ ", "/  two  spaces ", `/"quoted"`, `/back\slash`, "/%41", "/A", "/a", "/%", "/%zz", "/...", "/-", "/~", "/new\nline", "/\r",
		"/\xff\xfe", "/\xc3\xa9", "/e\xcc\x81", "/\xe9", "/\xed\xa0\x80", "/*?[a]{b}", "/\x01\x7f", "/<&>'",
		lock.Name("/" + everyByte()),
	}
	tokens := make(map[lock.Name]lock.Token)
	for _, name := range names {
		tokens[name] = f.must(name, 0, hold("ada"))
	}
	all := f.all()
	for _, name := range names {
		if all[name].Revision != tokens[name] {
			f.Errorf("%q is at revision %d, want %d", name, all[name].Revision, tokens[name])
		}
	}
	if len(all) != len(names) {
		f.Errorf("All yields %d names, want %d", len(all), len(names))
	}
	for _, name := range names {
		f.must(name, tokens[name])
	}
}

func nested(f *fixture) {
	outer := f.must("/g", 0, hold("ada"))
	inner := f.must("/g/m", 0, hold("ben"))
	f.holders("/g", "ada")
	f.holders("/g/m", "ben")
	f.must("/g/m", inner)
	f.must("/g", outer)
}

// tooLong leaves it to the store which names it can hold, but not to change something and then fail.
func tooLong(f *fixture) {
	for _, length := range []int{255, 256, 4000} {
		name := lock.Name("/" + strings.Repeat("n", length))
		token, err := f.Commit(f.store, name, 0, hold("ada"))
		if err == nil {
			f.holders(name, "ada")
			f.must(name, token)
			continue
		}
		if length <= 255 {
			f.Errorf("a name of %d bytes: %v", length, err)
		}
		if errors.Is(err, lock.ErrUncertain) || errors.Is(err, lock.ErrConflict) || errors.Is(err, lock.ErrNoParent) {
			f.Errorf("a name of %d bytes: %v, which says something else", length, err)
		}
		f.holders(name)
	}
}

// silence is how long a store is given to say what it must not say.
const silence = 100 * time.Millisecond

func ownChanges(f *fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := f.store.Watch(ctx)
	got := make(chan lock.Event, 1)
	var running sync.WaitGroup
	running.Go(func() {
		for event := range events {
			got <- event
			break
		}
	})
	for range 20 {
		token := f.must("/a", 0, hold("ada"))
		token = f.must("/a", token, hold("ben"))
		f.must("/a", token)
	}
	timer := time.NewTimer(silence)
	defer timer.Stop()
	select {
	case event := <-got:
		f.Errorf("Watch yields one's own change: %+v", event)
	case <-timer.C:
	}
	cancel()
	running.Wait()
}

func watchEnds(f *fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for event := range f.store.Watch(ctx) {
		f.Errorf("got %+v", event)
	}
}
