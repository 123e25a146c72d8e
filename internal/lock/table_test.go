package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
)

// newTable returns a table in memory.
func newTable(t *testing.T, o lock.Options, rules ...lock.Rule) *lock.Table {
	t.Helper()
	compiled, err := lock.NewRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	o.Rules = compiled
	if o.Log == nil {
		o.Log = locktest.NewMemory()
	}
	if o.Clock == nil {
		o.Clock = locktest.NewRunningClock()
	}
	table, err := lock.NewTable(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// acquire acquires a lock, and waits for its turn.
func acquire(s *lock.Session, n lock.Name) (lock.Hold, error) {
	woken := make(chan struct{}, 1)
	h, _, waiting, err := s.AcquireOrWait(context.Background(), n, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	for waiting != nil {
		<-woken
		var over bool
		if h, over, err = waiting.Poll(context.Background()); over {
			break
		}
	}
	return h, err
}

// Many sessions want a few names at once. At most one has each, every session that waits gets it, and no name stays busy.
func TestManySessionsShareAFewLocks(t *testing.T) {
	for _, directories := range []bool{false, true} {
		t.Run(fmt.Sprint("directories ", directories), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := new(locktest.Disk)
				disk.OnRemove(func(h lock.Hold) error {
					time.Sleep(time.Duration(h.Token%3) * time.Microsecond)
					if h.Token%7 == 0 {
						return errors.New("a bad sector")
					}
					return nil
				})
				o := lock.Options{Disk: disk}
				if !directories {
					o.Disk = nil
				}
				table := newTable(t, o,
					lock.Rule{Match: "/locks/*", MaxAge: time.Hour, Contention: &lock.Contention{Wait: time.Hour}})
				var inside [3]atomic.Int32
				var all sync.WaitGroup
				for i := range 16 {
					all.Go(func() {
						random := rand.New(rand.NewPCG(uint64(i), 0))
						s := table.Open(lock.Owner{Account: "a", Address: fmt.Sprint("10.0.0.", i)})
						for range 50 {
							which := random.IntN(len(inside))
							n := lock.Name(fmt.Sprint("/locks/", which))
							if _, err := acquire(s, n); err != nil {
								t.Errorf("%s: %v", n, err)
								return
							}
							if inside[which].Add(1) != 1 {
								t.Errorf("%s has two holders", n)
							}
							time.Sleep(time.Duration(random.IntN(5)) * time.Microsecond)
							inside[which].Add(-1)
							for {
								err := s.Release(context.Background(), n)
								if err == nil {
									break
								}
								disk.OnRemove(nil) // it is good from now on
							}
						}
						s.Close(context.Background())
					})
				}
				all.Wait()
				if c := table.Count(); c != (lock.Count{}) {
					t.Errorf("left: %+v", c)
				}
			})
		})
	}
}

// A full log refuses grants, renewals, changes of protected files and directories for them, whose records would use up the room for ends,
// and no release.
func TestAFullLogRefusesWhatEndsNothing(t *testing.T) {
	log := locktest.NewMemory()
	table := newTable(t, lock.Options{Log: log, Disk: freeDisk{}}, lock.Rule{Match: "/locks/*", Contention: &lock.Contention{Shared: []string{"a"}}},
		lock.Rule{Match: "/x_lock", Protection: &lock.Protection{Paths: []string{"/x"}}})
	writer := table.Open(lock.Owner{Account: "w"})
	if _, err := acquire(writer, "/x_lock"); err != nil {
		t.Fatal(err)
	}
	var sessions []*lock.Session
	for range 100 {
		s := table.Open(lock.Owner{Account: "a", Address: "10.0.0.1"})
		if _, err := acquire(s, "/locks/x"); err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	log.SetFull(true)
	s := table.Open(lock.Owner{Account: "b"})
	if _, err := acquire(s, "/locks/y"); !errors.Is(err, lock.ErrFull) {
		t.Errorf("a grant: %v", err)
	}
	if _, err := sessions[0].Renew(t.Context(), "/locks/x"); !errors.Is(err, lock.ErrFull) {
		t.Errorf("a renewal: %v", err)
	}
	if err := writer.Write(t.Context(), []lock.Write{{Path: "/x"}}, func([]lock.Permit) error { return nil }); !errors.Is(err, lock.ErrFull) {
		t.Errorf("a change of a protected file: %v", err)
	}
	if err := table.Published(t.Context(), lock.Hold{Name: "/x_lock", Token: 1}, lock.Owner{}, lock.NoteUnconfirmed, lock.Publication{Path: "/x"}); !errors.Is(err, lock.ErrFull) {
		t.Errorf("a second record of a change: %v", err)
	}
	if err := sessions[0].MakeDirectory(t.Context(), "/locks/x"); !errors.Is(err, lock.ErrFull) {
		t.Errorf("a directory: %v", err)
	}
	for i, s := range sessions {
		if err := s.Release(t.Context(), "/locks/x"); err != nil {
			t.Fatalf("release %d: %v", i, err)
		}
	}
	log.SetFull(false)
	if _, err := acquire(s, "/locks/y"); err != nil {
		t.Error(err)
	}
}

// panicking is a disk with a bug.
type panicking struct{ *locktest.Disk }

func (panicking) Make(context.Context, lock.Name) (lock.DirectoryID, error) { panic("a bug") }

func TestAPanicOfTheDiskLeavesNoNameBusy(t *testing.T) {
	table := newTable(t, lock.Options{Disk: panicking{new(locktest.Disk)}}, lock.Rule{Match: "/locks/*"})
	s := table.Open(lock.Owner{Account: "a"})
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _, _, err := s.AcquireOrWait(ctx, "/locks/x", nil)
			t.Error(err)
		}()
	}
}

// Files lie in a lock that two sessions share. The one that leaves last finds them.
func TestSessionsThatShareALockShareTheDirectoryOfItsFiles(t *testing.T) {
	disk := new(locktest.Disk)
	table := newTable(t, lock.Options{Disk: disk}, lock.Rule{Match: "/locks/*", Contention: &lock.Contention{Shared: []string{"a"}}})
	first, second := table.Open(lock.Owner{Account: "a"}), table.Open(lock.Owner{Account: "a"})
	for _, s := range []*lock.Session{first, second} {
		if _, err := acquire(s, "/locks/a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := second.MakeDirectory(t.Context(), "/locks/a"); err != nil {
		t.Fatal(err)
	}
	disk.OnRemove(func(lock.Hold) error { return lock.ErrNotEmpty })
	if err := first.Release(t.Context(), "/locks/a"); err != nil {
		t.Error(err)
	}
	if err := second.Release(t.Context(), "/locks/a"); !errors.Is(err, lock.ErrNotEmpty) {
		t.Errorf("release of a lock with a file in it: %v, want %v", err, lock.ErrNotEmpty)
	}
}

// unwritten is a log that cannot report whether a record was written.
type unwritten struct {
	*locktest.Memory
	fails atomic.Bool
}

func (u *unwritten) Wait(ctx context.Context, end lock.Position, durable bool) error {
	if u.fails.Load() && end > 0 {
		return lock.ErrUncertain
	}
	return u.Memory.Wait(ctx, end, durable)
}

// A reply never depends on a record that may be undone: a refusal waits until the hold that it names is written.
func TestARefusalWaitsForTheRecordsThatItDependsOn(t *testing.T) {
	log := &unwritten{Memory: locktest.NewMemory()}
	table := newTable(t, lock.Options{Log: log}, lock.Rule{Match: "/x_lock", Protection: &lock.Protection{Paths: []string{"/x"}}})
	first, second := table.Open(lock.Owner{Account: "a"}), table.Open(lock.Owner{Account: "b"})
	if _, err := acquire(first, "/x_lock"); err != nil {
		t.Fatal(err)
	}
	refusals := func(want error) {
		t.Helper()
		_, acquired := acquire(second, "/x_lock")
		released := second.Release(t.Context(), "/x_lock")
		_, may := second.MayWrite(t.Context(), "/x")
		wrote := second.Write(t.Context(), []lock.Write{{Path: "/x"}}, func([]lock.Permit) error { return nil })
		for what, err := range map[string]error{"acquire": acquired, "release": released, "may write": may, "write": wrote} {
			if err == nil || errors.Is(err, lock.ErrUncertain) != (want == lock.ErrUncertain) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	refusals(lock.ErrHeld)
	log.fails.Store(true)
	refusals(lock.ErrUncertain)
}

// The end of a wait is a refusal, too.
func TestATimeoutWaitsForTheRecordsThatItDependsOn(t *testing.T) {
	s := newScene(t, lock.Rule{Match: "/x", Contention: &lock.Contention{Wait: time.Minute}})
	log := &unwritten{Memory: locktest.NewMemory()}
	s.log = log
	s.start()
	s.acquire(s.open("a"), "/x")
	w := s.queue(s.open("b"), "/x")
	s.pass(time.Minute)
	log.fails.Store(true)
	if _, over, err := w.Poll(s.ctx); !over || !errors.Is(err, lock.ErrUncertain) {
		t.Errorf("over: %v, %v", over, err)
	}
}

// freeDisk is a disk without files. Locks have no directories on it until one is needed.
type freeDisk struct{ lock.Disk }

func (freeDisk) Free(lock.Name) bool { return true }

// countingLog has room for a number of records.
type countingLog struct {
	*locktest.Memory
	left atomic.Int64
}

func (l *countingLog) Room(token lock.Token) bool { return int64(token) <= l.left.Load() }

func (l *countingLog) MakeRoom(context.Context, lock.Token) error { return lock.ErrFull }

// A write under way keeps the room for its publications. It waits for the log after its end, when the hold can end, too. Its function may
// fail after the first publication.
func TestAWriteKeepsRoomAndWaitsAfterItsEnd(t *testing.T) {
	for _, failed := range []error{nil, errors.New("the second change fails")} {
		synctest.Test(t, func(t *testing.T) {
			log := &patientWrites{countingLog: &countingLog{Memory: locktest.NewMemory()}, goOn: make(chan struct{})}
			log.left.Store(3)
			table := newTable(t, lock.Options{Log: log}, lock.Rule{Match: "/b_lock"},
				lock.Rule{Match: "/x_lock", Protection: &lock.Protection{Paths: []string{"/x", "/y"}}})
			s := table.Open(lock.Owner{Account: "w"})
			if _, err := acquire(s, "/x_lock"); err != nil {
				t.Fatal(err)
			}
			written := make(chan error)
			go func() {
				written <- s.Write(t.Context(), []lock.Write{{Path: "/x"}, {Path: "/y"}}, func(permits []lock.Permit) error {
					if _, err := acquire(table.Open(lock.Owner{Account: "b"}), "/b_lock"); !errors.Is(err, lock.ErrFull) {
						t.Errorf("a grant in the room of two publications: %v", err)
					}
					for _, p := range permits {
						table.Publish(lock.Hold{Name: p.Lock, Token: p.Token}, p.Owner, "", lock.Publication{Path: "/x"})
					}
					log.block.Store(true)
					return failed
				})
			}()
			synctest.Wait()
			if err := s.Release(t.Context(), "/x_lock"); err != nil {
				t.Error(err)
			}
			select {
			case err := <-written:
				t.Errorf("the write has not waited for its record: %v", err)
			default:
			}
			close(log.goOn)
			if err := <-written; err != failed {
				t.Error(err)
			}
		})
	}
}

// patientWrites blocks the next Wait after block is set, until goOn is closed.
type patientWrites struct {
	*countingLog
	block atomic.Bool
	goOn  chan struct{}
}

func (l *patientWrites) Wait(ctx context.Context, end lock.Position, durable bool) error {
	if l.block.CompareAndSwap(true, false) {
		<-l.goOn
	}
	return l.countingLog.Wait(ctx, end, durable)
}
