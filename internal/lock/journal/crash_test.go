package journal

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// powerFailure crashes the store and takes from the journal what was never synced.
func (s *scene) powerFailure(store *Store) {
	s.Helper()
	synced := store.log.synced
	s.crash(store)
	if err := os.Truncate(stateDir(s.state).journal(), synced); err != nil {
		s.Fatal(err)
	}
}

// volatileTree is a hostTree whose last changes a power failure can undo. A directory that comes back is the
// same one: it was only moved out of sight.
type volatileTree struct {
	*hostTree
	attic   string
	shelves int
	done    []func()
}

func (v *volatileTree) Mkdir(name string, perm fs.FileMode) error {
	err := v.hostTree.Mkdir(name, perm)
	if err == nil {
		v.done = append(v.done, func() { v.move(v.real(name), v.shelf()) })
	}
	return err
}

func (v *volatileTree) RemoveDir(name string) error {
	if entries, err := os.ReadDir(v.real(name)); err != nil || len(entries) > 0 {
		return v.hostTree.RemoveDir(name)
	}
	shelf := v.shelf()
	v.move(v.real(name), shelf)
	v.done = append(v.done, func() { v.move(shelf, v.real(name)) })
	return nil
}

// shelf returns a free place in the attic.
func (v *volatileTree) shelf() string {
	v.shelves++
	return filepath.Join(v.attic, fmt.Sprint(v.shelves))
}

func (v *volatileTree) move(from, to string) {
	if err := os.Rename(from, to); err != nil {
		panic(err)
	}
}

// undo takes back the last n changes.
func (v *volatileTree) undo(n int) {
	for ; n > 0 && len(v.done) > 0; n-- {
		last := len(v.done) - 1
		v.done[last]()
		v.done = v.done[:last]
	}
}

// unsynced makes syncs free: here they matter by their place only.
type unsynced struct{ journalFile }

func (unsynced) Sync() error { return nil }

// act is one thing that a client does to a name in the crash test, and what the server acknowledged.
type act struct {
	name    lock.Name
	account string // "": release
}

var script = []act{
	{"/locks/g", "ada"}, {"/a_lock", "ada"}, {"/locks/g/m", "ben"}, {"/a_lock", "ben"}, {"/a_lock", ""},
	{"/a_lock", "eve"}, {"/locks/g/m", ""}, {"/b_lock", "ada"}, {"/locks/g/m", "eve"}, {"/b_lock", ""},
	{"/a_lock", ""}, {"/a_lock", "zoe"}, {"/locks/g/m", ""}, {"/locks/g", ""}, {"/c_lock", "ada"},
	{"/d_lock", "ada"}, {"/d_lock", "ben"}, {"/e_lock", "ada"}, {"/d_lock", "eve"}, {"/d_lock", ""},
}

// lifeline is what is known of one name: the states that it may be found in after a crash, the last one being the
// one that was acknowledged or asked for last.
type lifeline struct {
	may      []string // accounts, "" for free
	revision lock.Token
	tokens   map[string]lock.Token // of the acknowledged grants
}

// ledger is what the clients of the crash test know.
type ledger struct {
	names map[lock.Name]*lifeline
	last  lock.Token
}

// crashed is what a step panics with.
type crashed struct{}

// stopAt makes the n-th step from now on the last one.
func (s *scene) stopAt(n int) (count *int) {
	count = new(int)
	s.step = func(string) {
		*count++
		if *count == n {
			panic(crashed{})
		}
	}
	return count
}

// untilCrash runs f and reports whether it got to its end.
func untilCrash(f func()) (finished bool) {
	defer func() {
		if p := recover(); p != nil && p != (crashed{}) {
			panic(p)
		}
	}()
	f()
	return true
}

// play does the script, noting what is acknowledged.
func (l *ledger) play(s *scene, store *Store, powerLoss bool) {
	for _, a := range script {
		line := l.names[a.name]
		if line == nil {
			line = &lifeline{may: []string{""}, tokens: make(map[string]lock.Token)}
			l.names[a.name] = line
		}
		before := line.may[len(line.may)-1]
		line.may = append(line.may, a.account) // from now on it may have happened
		var holds []lock.Hold
		if a.account != "" {
			holds = []lock.Hold{s.hold(a.account)}
		}
		token, err := s.commit(store, a.name, line.revision, holds...)
		if err != nil {
			s.Fatalf("%v: %v", a, err)
		}
		l.last = token
		line.may = []string{a.account} // and now it has
		line.revision = token
		if a.account == "" {
			line.revision = 0
			if powerLoss {
				line.may = []string{before, ""} // a release need not last
			}
		} else {
			line.tokens[a.account] = token
		}
	}
}

// verify compares what the store says, and the tree, with what the clients know.
func (l *ledger) verify(s *scene, store *Store) {
	s.Helper()
	records := s.records(store)
	for name, line := range l.names {
		record, account := records[name], ""
		if len(record.Holds) > 0 {
			account = record.Holds[0].Owner.Account
		}
		if !slices.Contains(line.may, account) {
			s.Errorf("%s is held by %q, want one of %q", name, account, line.may)
			continue
		}
		s.hasDirectory(string(name), account != "")
		if account == "" {
			continue
		}
		if want, acknowledged := line.tokens[account]; acknowledged && record.Holds[0].Token != want {
			s.Errorf("%s has token %d, want %d", name, record.Holds[0].Token, want)
		}
		if age := since(record.Holds[0].Acquired, s.clock.Now()); age < 0 || age > time.Minute {
			s.Errorf("%s is %v old", name, age)
		}
		seen, err := store.tree.look(name)
		if err != nil || seen.id != directory(record) {
			s.Errorf("%s has directory %+v on disk, %+v in its record (%v)", name, seen.id, directory(record), err)
		}
	}
	for name := range records {
		if l.names[name] == nil {
			s.Errorf("%s is held and was never asked for", name)
		}
	}
	if token := s.acquire(store, "/new_lock", "ada"); token <= l.last {
		s.Errorf("token %d after %d", token, l.last)
	}
}

// TestACrashAtAnyStep stops the server between every two steps of a script that includes several rotations, in four
// ways, stops it a second time during recovery, and looks whether what was acknowledged still is so.
func TestACrashAtAnyStep(t *testing.T) {
	ways := []struct {
		name      string
		powerLoss bool
		undone    int // how many changes of directories are lost
	}{
		{"kill -9", false, 0}, {"power failure, no directory lost", true, 0},
		{"power failure, two directories lost", true, 2},
		{"power failure, all directories lost", true, 1000},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				s := newScene(t)
				tree := &volatileTree{hostTree: s.tree, attic: t.TempDir()}
				s.mkdir("/locks")
				s.options = func(o *Options) { o.FS, o.Root, o.MaxSize = tree, "", 2500 }
				s.wrap = func(f journalFile) journalFile { return unsynced{f} }
				s.stopAt(n)
				l := &ledger{names: make(map[lock.Name]*lifeline)}
				var store *Store
				finished := untilCrash(func() {
					store = s.mustOpen()
					l.play(s, store, way.powerLoss)
				})
				if store != nil && way.powerLoss {
					s.powerFailure(store)
					tree.undo(way.undone)
				} else if store != nil {
					s.crash(store)
				}
				s.stopAt(1 + n%20)
				untilCrash(func() { s.crash(s.mustOpen()) })
				s.step = nil
				store = s.mustOpen()
				l.verify(s, store)
				s.crash(store)
				if t.Failed() {
					t.Fatalf("stopped at step %d; the journal:\n%s", n, s.journal())
				}
				if finished {
					if n < 70 {
						t.Errorf("only %d steps", n)
					}
					if old, _ := stateDir(s.state).rotated(); len(old) < 2 {
						t.Errorf("only %d rotations", len(old))
					}
					return
				}
			}
		})
	}
}

// A start that removes such a directory, or begins a new journal, does not forget whose it was.
func TestTheDirectoryOfAReleasedLockMayComeBackAgainAndAgain(t *testing.T) {
	for _, c := range []struct {
		name      string
		comesBack bool          // already before the first start
		later     time.Duration // is the first start than the release
	}{{"a crash, then a loss of power", false, 0}, {"two losses of power", true, 0}, {"two losses of power, long after the release", true, time.Hour}} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t)
			tree := &volatileTree{hostTree: s.tree, attic: t.TempDir()}
			s.options = func(o *Options) { o.FS, o.Root, o.MaxSize = tree, "", 100 }
			store := s.mustOpen()
			s.release(store, "/a_lock", s.acquire(store, "/a_lock", "ada"))
			s.crash(store)
			if c.comesBack {
				tree.undo(1)
			}
			s.clock.advance(c.later)
			for range 3 {
				s.crash(s.mustOpen())
				tree.undo(1)
				tree.done = append(tree.done, func() {}) // a start that removes nothing leaves it there
			}
			store = s.mustOpen()
			s.heldBy(store, "/a_lock", "")
			s.hasDirectory("/a_lock", false)
			s.crash(store)
		})
	}
}

// Bytes that are cut off may be there still after a loss of power, behind what is written in their place. And where lines were not synced by
// a server that crashed, it may take one of them and leave those behind it: with the line of a start among those, that is damage.
func TestWhatAStartFindsInTheJournalLastsBeforeItWrites(t *testing.T) {
	for _, c := range []struct {
		end  string
		want []string
	}{{"", []string{"sync", "write", "sync"}}, {"torn", []string{"truncate", "sync", "write", "sync"}}} {
		s := newScene(t)
		store := s.mustOpen()
		s.acquire(store, "/a_lock", "ada")
		s.crash(store)
		if err := os.WriteFile(stateDir(s.state).journal(), []byte(s.journal()+c.end), 0o600); err != nil {
			t.Fatal(err)
		}
		var calls []string
		s.wrap = func(f journalFile) journalFile { return noted{f, &calls} }
		s.crash(s.mustOpen())
		if len(calls) < len(c.want) || !slices.Equal(calls[:len(c.want)], c.want) {
			t.Errorf("%q, want %q first", calls, c.want)
		}
	}
}

// noted notes what is done to a journal.
type noted struct {
	journalFile
	calls *[]string
}

func (n noted) note(call string) { *n.calls = append(*n.calls, call) }

func (n noted) WriteAt(b []byte, offset int64) (int, error) {
	n.note("write")
	return n.journalFile.WriteAt(b, offset)
}

func (n noted) Truncate(size int64) error {
	n.note("truncate")
	return n.journalFile.Truncate(size)
}

func (n noted) Sync() error {
	n.note("sync")
	return n.journalFile.Sync()
}

func TestATornLastLineIsCutOff(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.acquire(store, "/a_lock", "ada")
	s.acquire(store, "/b_lock", "ben")
	s.crash(store)
	whole := s.journal()
	lines := strings.SplitAfter(whole, "\n")
	last := lines[len(lines)-2] // notes b's directory
	for _, tail := range []string{
		last[:1], last[:len(last)/2], last[:len(last)-1],
		"garbage\n", strings.Repeat("garbage", 1000), "\x00\x00\x00", "\n", strings.Replace(last, `"token":`, `"token":1`, 1),
	} {
		if err := os.WriteFile(stateDir(s.state).journal(), []byte(strings.TrimSuffix(whole, last)+tail), 0o600); err != nil {
			t.Fatal(err)
		}
		store := s.mustOpen()
		s.heldBy(store, "/a_lock", "ada")
		s.heldBy(store, "/b_lock", "ben")
		s.crash(store)
		store = s.mustOpen() // nothing of it is left
		s.crash(store)
		if strings.Contains(s.journal(), "garbage") || strings.Contains(s.journal(), "\x00") {
			t.Errorf("%q is still there", tail)
		}
	}
}

func TestDamageFurtherUpIsNamed(t *testing.T) {
	s := newScene(t)
	store := s.mustOpen()
	s.acquire(store, "/a_lock", "ada")
	s.release(store, "/a_lock", s.acquire(store, "/b_lock", "ben")-1)
	s.crash(store)
	whole := s.journal()
	for at := 0; at < len(whole); at += 5 {
		if strings.Count(whole[at:], "\n") == 1 { // the last line
			break
		}
		if strings.Count(whole[at:], "\n") == 2 && whole[at] == '\n' {
			continue // makes one of the last two lines, which is cut off like a torn one
		}
		b := []byte(whole)
		b[at] ^= 1
		if err := os.WriteFile(stateDir(s.state).journal(), b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := s.open()
		path := stateDir(s.state).journal()
		if number := 1 + strings.Count(whole[:at], "\n"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%s:%d: damaged", path, number)) {
			t.Fatalf("a bit of line %d is wrong: %v", number, err)
		}
	}
}

func TestAMissingJournalIsNoFreshStart(t *testing.T) {
	s := newScene(t)
	s.options = func(o *Options) { o.MaxSize = 500 }
	store := s.mustOpen()
	s.acquire(store, "/a_lock", "ada")
	s.restart(store).Close()
	if err := os.Remove(stateDir(s.state).journal()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.open(); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(stateDir(s.state).journal(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.open(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("an empty journal: %v", err)
	}
}
