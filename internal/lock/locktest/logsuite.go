// Package locktest has tests and fakes for the interfaces of package lock: [TestLog] is the suite that every log passes, [CheckHistory] checks the
// history of clients against [LifeModel], and [Memory], [Disk] and [FakeClock] replace log, disk and clock.
//
// Start reading at [TestLog] and [LifeModel].
package locktest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// LogBench opens logs for [TestLog], all on one storage.
type LogBench interface {
	// Open opens a log on the storage, which is empty at first.
	Open() (lock.Log, error)
	// Stop closes the log in order.
	Stop(lock.Log) error
	// Kill ends the log as SIGKILL does: it writes nothing more.
	Kill(lock.Log)
	// Now returns the time of the log's clock. Each call returns a later time.
	Now() lock.Instant
}

// TestLog tests a log, each time on new storage.
func TestLog(t *testing.T, bench func(t *testing.T) LogBench) {
	for name, test := range map[string]func(*logScene){
		"a new log is empty":                          (*logScene).empty,
		"held locks are loaded":                       (*logScene).holdsLoaded,
		"a hold is loaded as it was":                  (*logScene).holdUnchanged,
		"names are bytes":                             (*logScene).bytes,
		"records of one batch keep their order":       (*logScene).order,
		"a record that was written twice counts once": (*logScene).appendedTwice,
		"tokens and starts grow":                      (*logScene).tokensGrow,
		"a kill loses nothing that was waited for":    (*logScene).killed,
		"records are written without a Wait":          (*logScene).background,
		"many callers wait":                           (*logScene).manyCallers,
		"a wait for a synced record returns at once":  (*logScene).syncedAtOnce,
		"there is room for the next token":            (*logScene).room,
		"the history has every entry once":            (*logScene).history,
		"many records change no hold":                 (*logScene).manyRecords,
	} {
		t.Run(name, func(t *testing.T) {
			s := &logScene{T: t, bench: bench(t), holds: make(map[lock.Token]lock.Hold)}
			s.open()
			test(s)
			if err := s.bench.Stop(s.log); err != nil {
				t.Error(err)
			}
		})
	}
}

// logScene is a log and the content that it must have.
type logScene struct {
	*testing.T
	bench  LogBench
	log    lock.Log
	loaded lock.Loaded
	holds  map[lock.Token]lock.Hold
	token  lock.Token
}

// logRule is the rule of the holds.
var logRule = &lock.Rule{
	Match: "/**/*_lock", MaxAge: time.Hour, MaxIdle: time.Minute, OnDisconnect: lock.ReleaseOnDisconnect, Grace: time.Second,
	LockDelay: 2 * time.Second, Release: lock.ReleaseUser, AllowCwd: true,
}

func (s *logScene) open() {
	s.Helper()
	var err error
	if s.log, err = s.bench.Open(); err != nil {
		s.Fatal(err)
	}
	before := s.loaded
	if s.loaded, err = s.log.Load(s.Context()); err != nil {
		s.Fatal(err)
	}
	if s.loaded.Start <= before.Start {
		s.Errorf("start %d after start %d", s.loaded.Start, before.Start)
	}
	if s.loaded.Last < s.token {
		s.Errorf("tokens go on after %d, but %d was given", s.loaded.Last, s.token)
	}
	s.token = s.loaded.Last
}

// restart stops or kills the log, opens it again, and checks the holds that it loads.
func (s *logScene) restart(kill bool) {
	s.Helper()
	if kill {
		s.bench.Kill(s.log)
	} else if err := s.bench.Stop(s.log); err != nil {
		s.Fatal(err)
	}
	s.open()
	s.check()
}

// check compares the loaded holds with the expected ones.
func (s *logScene) check() {
	s.Helper()
	var last lock.Token
	for _, h := range s.loaded.Holds {
		want, ok := s.holds[h.Token]
		if !ok {
			s.Errorf("%s has token %d, and should not be held", h.Name, h.Token)
		} else if got, want := inUTC(h), inUTC(want); !reflect.DeepEqual(got, want) {
			s.Errorf("got  %+v\nwant %+v", got, want)
		}
		if h.Token <= last {
			s.Errorf("token %d after %d", h.Token, last)
		}
		last = h.Token
	}
	if len(s.loaded.Holds) != len(s.holds) {
		s.Errorf("%d holds, want %d", len(s.loaded.Holds), len(s.holds))
	}
}

// inUTC returns a hold with its times in UTC, to compare it.
func inUTC(h lock.Hold) lock.Hold {
	h.Acquired.Wall, h.Renewed.Wall = h.Acquired.Wall.UTC(), h.Renewed.Wall.UTC()
	return h
}

// grant returns the record of a grant with the next token.
func (s *logScene) grant(name lock.Name) lock.Record {
	s.Helper()
	s.token++
	if err := s.log.MakeRoom(s.Context(), s.token); err != nil {
		s.Fatal(err)
	}
	now := s.bench.Now()
	owner := lock.Owner{Account: "ada", Address: "192.0.2.1", Session: 3<<40 | 17, JobKey: "n"}
	h := lock.Hold{Name: name, Token: s.token, Owner: owner, Acquired: now, Renewed: now, Rule: logRule}
	return lock.Record{Kind: lock.Granted, Cause: lock.CauseAcquire, Hold: h, By: owner, At: now}
}

// end returns the record of an end.
func (s *logScene) end(h lock.Hold, cause lock.Cause) lock.Record {
	return lock.Record{Kind: lock.Ended, Cause: cause, Hold: h, By: h.Owner, At: s.bench.Now()}
}

// append appends records without waiting, and changes the expected holds.
func (s *logScene) append(records ...lock.Record) lock.Position {
	for _, r := range records {
		switch r.Kind {
		case lock.Granted, lock.Changed:
			delete(s.holds, r.Replaces)
			s.holds[r.Hold.Token] = r.Hold
		case lock.Ended:
			delete(s.holds, r.Hold.Token)
		}
	}
	return s.log.Append(records)
}

// commit appends records and waits for them.
func (s *logScene) commit(records ...lock.Record) {
	s.Helper()
	if err := s.log.Wait(s.Context(), s.append(records...), true); err != nil {
		s.Fatal(err)
	}
}

func (s *logScene) empty() {
	s.check()
	if s.loaded.Start == 0 {
		s.Error("start 0")
	}
	s.restart(false)
	s.restart(true)
}

func (s *logScene) holdsLoaded() {
	a, b := s.grant("/a_lock"), s.grant("/b_lock")
	s.commit(a)
	s.commit(b)
	s.restart(false)
	s.commit(s.end(a.Hold, lock.CauseRelease))
	s.commit(s.grant("/a_lock"))
	s.restart(false)
	s.restart(false)
	s.commit(s.end(b.Hold, lock.CauseExpire))
	s.restart(true)
}

func (s *logScene) holdUnchanged() {
	r := s.grant("/d/a_lock")
	s.commit(r)
	h := &r.Hold
	h.Note = "web3 4711 backup.sh"
	h.Shared, h.Asked = true, lock.Asked{Age: time.Minute, Release: true, Grace: time.Second}
	h.Directory = lock.DirectoryID{Inode: 1 << 63, Birth: -5, Parent: 3}
	h.Renewed = s.bench.Now()
	s.commit(lock.Record{Kind: lock.Changed, Cause: lock.CauseRenew, Hold: *h, By: h.Owner, At: s.bench.Now()})
	adopted := s.grant("/d/a_lock")
	adopted.Cause, adopted.Replaces, adopted.Hold.Acquired = lock.CauseAdopt, h.Token, h.Acquired
	other := s.grant("/d/b_lock")
	other.Hold.Rule = &lock.Rule{Match: "b"}
	s.commit(adopted, other)
	s.restart(true)
	s.restart(false)
}

func (s *logScene) bytes() {
	every := make([]byte, 0, 256)
	for b := range 255 {
		if b+1 != '/' {
			every = append(every, byte(b+1))
		}
	}
	for _, name := range []string{"/" + string(every), "/grün_lock", "/%41_lock", `/"\_lock`, "/a\nb_lock", "/a b_lock", "/\xff\xfe_lock"} {
		r := s.grant(lock.Name(name))
		r.Hold.Owner.Account, r.Hold.Owner.JobKey = name, name[1:]
		s.commit(r)
	}
	s.restart(true)
}

func (s *logScene) order() {
	a := s.grant("/a_lock")
	again := s.grant("/a_lock")
	s.commit(a, s.end(a.Hold, lock.CauseRelease), again)
	s.restart(true)
	s.commit()
	s.commit(s.end(again.Hold, lock.CauseRelease))
	s.restart(true)
}

func (s *logScene) appendedTwice() {
	a, b := s.grant("/a_lock"), s.grant("/b_lock")
	end := s.end(a.Hold, lock.CauseRelease)
	s.commit(a, a, b)
	s.commit(end, end)
	s.restart(true)
}

func (s *logScene) tokensGrow() {
	for i := range 4 {
		r := s.grant("/a_lock")
		s.commit(r, s.end(r.Hold, lock.CauseRelease))
		s.restart(i%2 == 0)
	}
}

func (s *logScene) killed() {
	for range 20 {
		r := s.grant("/a_lock")
		if err := s.log.Wait(s.Context(), s.append(r), false); err != nil {
			s.Fatal(err)
		}
		s.restart(true)
		if err := s.log.Wait(s.Context(), s.append(s.end(r.Hold, lock.CauseRelease)), false); err != nil {
			s.Fatal(err)
		}
		s.restart(true)
	}
}

func (s *logScene) background() {
	end := s.append(s.grant("/a_lock"))
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	for s.log.Wait(ctx, end, true) != nil {
		time.Sleep(time.Millisecond)
		if s.Context().Err() != nil {
			return
		}
	}
	s.restart(true)
}

func (s *logScene) manyCallers() {
	const callers = 32
	var mu sync.Mutex
	var all sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		all.Go(func() {
			for n := range 10 {
				mu.Lock()
				r := s.grant(lock.Name(fmt.Sprintf("/%d_lock", i)))
				end := s.append(r)
				mu.Unlock()
				err := s.log.Wait(context.Background(), end, n%2 == 0)
				if n < 9 {
					mu.Lock()
					end = s.append(s.end(r.Hold, lock.CauseRelease))
					mu.Unlock()
					err = errors.Join(err, s.log.Wait(context.Background(), end, false))
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
	s.restart(true)
	if len(s.holds) != callers {
		s.Errorf("%d holds", len(s.holds))
	}
}

func (s *logScene) syncedAtOnce() {
	end := s.append(s.grant("/a_lock"))
	if err := s.log.Wait(s.Context(), end, true); err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	for range 100 {
		if err := s.log.Wait(ctx, end, true); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *logScene) room() {
	for range 100 {
		if err := s.log.MakeRoom(s.Context(), s.token+1); err != nil || !s.log.Room(s.token+1) {
			s.Fatalf("no room: %v", err)
		}
		s.commit(s.grant("/a_lock"))
	}
	if s.log.Room(s.token + 1<<40) {
		s.Error("there is room for a token that cannot be reserved")
	}
}

func (s *logScene) history() {
	log, ok := s.log.(lock.History)
	if !ok {
		s.Skip("this log has no history")
	}
	r := s.grant("/a_lock")
	r.Hold.Note = "web3 4711 backup.sh"
	h := r.Hold
	file := &lock.Publication{Path: "/a.tsv", Bytes: 7, SHA256: "00ff"}
	publish := lock.Record{Kind: lock.Published, Cause: lock.CausePublish, Hold: h, By: h.Owner, At: s.bench.Now(), File: file}
	end := s.end(h, lock.CauseBreak)
	end.By, end.Note = lock.Owner{Account: "root"}, "why"
	s.commit(r, s.grant("/b_lock"), publish)
	s.commit(end)
	for restarted := range 3 {
		for name, want := range map[lock.Name][]lock.Record{"/a_lock": {r, publish, end}, "/a.tsv": {publish}, "/c_lock": nil, "/a": nil} {
			n := 0
			for e, err := range log.History(s.Context(), name) {
				if err != nil || n >= len(want) {
					s.Fatalf("%s: entry %d: %+v, %v", name, n, e, err)
				}
				w := lock.Entry{
					At: want[n].At, Cause: want[n].Cause, Name: h.Name, Token: h.Token, By: want[n].By, Owner: h.Owner, Note: want[n].Note, File: want[n].File,
				}
				if w.Cause == lock.CauseAcquire {
					w.Note = h.Note
				}
				if w.Cause == lock.CauseBreak {
					w.Held = w.At.Boot - h.Acquired.Boot
				}
				e.At, w.At = lock.Instant{Wall: e.At.Wall.UTC()}, lock.Instant{Wall: w.At.Wall.UTC()}
				if !reflect.DeepEqual(e, w) {
					s.Errorf("start %d, %s:\ngot  %+v\nwant %+v", restarted, name, e, w)
				}
				n++
			}
			if n != len(want) {
				s.Errorf("start %d, %s: %d entries, want %d", restarted, name, n, len(want))
			}
		}
		s.restart(restarted > 0)
		log = s.log.(lock.History)
	}
}

// manyRecords makes so many changes that a log drops its older part, if it does that.
func (s *logScene) manyRecords() {
	for i := range 50 {
		s.commit(s.grant(lock.Name(fmt.Sprintf("/%d_lock", i))))
	}
	for range 500 {
		r := s.grant("/a_lock")
		s.commit(r, s.end(r.Hold, lock.CauseRelease))
	}
	s.restart(true)
	s.restart(false)
}
