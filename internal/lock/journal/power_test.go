//go:build linux

package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
	"github.com/ftplockd/ftplockd/internal/powerloss"
)

var power = powerloss.Flags(8)

// powerPlay is what the server does until the power fails: open stores one after the other, and in each of them acts.
type powerPlay struct {
	name    string
	stores  [][]locktest.Act
	durable bool
	maxSize int64
	fresh   bool // the state directory is made by the first store
}

var powerPlays = []powerPlay{
	{name: "acquire on a fresh state directory", stores: [][]locktest.Act{locktest.PlayOnce}, durable: true, fresh: true},
	{name: "acquire, release, acquire", stores: [][]locktest.Act{locktest.PlayThrice}, durable: true},
	{name: "two starts", stores: [][]locktest.Act{locktest.PlayOnce, {{Name: "/b_lock", Account: "ben"}}}, durable: true},
	{name: "two releases", stores: [][]locktest.Act{{{Name: "/a_lock", Account: "ada"}, {Name: "/b_lock", Account: "ben"}, {Name: "/a_lock"}, {Name: "/b_lock"}}}, durable: true},
	{name: "rotation", stores: [][]locktest.Act{locktest.PlayBusy}, durable: true, maxSize: 1300},
	{name: "a block of tokens", stores: [][]locktest.Act{locktest.PlayTokens}, durable: true},
	{name: "not durable", stores: [][]locktest.Act{locktest.PlayBusy, locktest.PlayOnce}, maxSize: 1500},
	{name: "not durable, a block of tokens", stores: [][]locktest.Act{locktest.PlayTokens}},
}

func powerPlayNamed(name string) powerPlay {
	i := slices.IndexFunc(powerPlays, func(p powerPlay) bool { return p.name == name })
	return powerPlays[i]
}

// unsyncedFile makes syncs free: what they are for is tried where they are recorded.
type unsyncedFile struct{ journalFile }

func (unsyncedFile) Sync() error { return nil }

// open opens a store below a directory; its syncs count where the process is recorded and cost nothing elsewhere.
func (p powerPlay) open(base string, recorded bool) (*Store, error) {
	o := Options{Dir: filepath.Join(base, "state"), Clock: lock.NewSystemClock(), Durable: p.durable, MaxSize: cmp.Or(p.maxSize, 64<<10)}
	if !recorded {
		o.wrap = func(f journalFile) journalFile { return unsyncedFile{f} }
	}
	return Open(o)
}

// perform opens a store in the process that is recorded and has clients do the acts.
func (p powerPlay) perform(t *testing.T, base string, found, acts []locktest.Act) {
	store, err := p.open(base, true)
	if err != nil {
		t.Fatal(err)
	}
	err = powerloss.Say(fmt.Sprint("started ", store.Generation()))
	err = errors.Join(err, locktest.Found(store, found, powerloss.Say))
	err = errors.Join(err, locktest.Perform(store, lock.NewSystemClock(), acts, powerloss.Say))
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestPowerPlay is a play, in the process that is recorded.
func TestPowerPlay(t *testing.T) {
	if name, base := powerloss.Playing(); name == "move" {
		playMove(t, base)
	} else if name != "" {
		p := powerPlayNamed(name)
		for _, acts := range p.stores {
			p.perform(t, base, nil, acts)
		}
	}
}

// TestPowerRecovery is what the server does when it starts again after a play, in the process that is recorded: it starts on
// what is there, tells clients who holds what, and gives one of them a lock.
func TestPowerRecovery(t *testing.T) {
	if name, base := powerloss.Playing(); name != "" {
		p := powerPlayNamed(name)
		p.perform(t, base, slices.Concat(p.stores...), []locktest.Act{{Name: "/late_lock", Account: "eve"}})
	}
}

// complaints opens a store on what a power failure has left and returns what is wrong with it.
func (p powerPlay) complaints(base string, said []string) []string {
	store, err := p.open(base, false)
	if err != nil {
		return []string{fmt.Sprintf("it does not start: %v", err)}
	}
	defer store.Close()
	told := locktest.Recall(said, true, p.durable)
	all := told.Complaints(store)
	for _, text := range said {
		var before uint32
		if _, err := fmt.Sscanf(text, "started %d", &before); err == nil && store.Generation() <= before {
			all = append(all, fmt.Sprintf("generation %d came twice", store.Generation()))
		}
	}
	if !p.durable {
		return all
	}
	for name := range told.May {
		var found []lock.Token
		var last lock.Cause
		for entry, err := range History(store.o.Dir, name) {
			if err != nil {
				all = append(all, fmt.Sprintf("history of %s: %v", name, err))
			}
			if slices.Contains(found, entry.Token) {
				all = append(all, fmt.Sprintf("the history of %s has token %d twice", name, entry.Token))
			}
			found, last = append(found, entry.Token), entry.Cause
		}
		if slices.Contains(told.Freed, name) && last != lock.CauseRelease {
			all = append(all, fmt.Sprintf("the history of %s lacks its release", name))
		}
		for _, token := range told.Granted(name) {
			if !slices.Contains(found, token) {
				all = append(all, fmt.Sprintf("the history of %s lacks token %d", name, token))
			}
		}
	}
	return all
}

// begin returns the play in a directory of its own.
func (p powerPlay) begin(t *testing.T) *powerloss.Play {
	t.Helper()
	play := powerloss.NewPlay(t, p.name, power, p.complaints)
	if !p.fresh {
		if err := os.Mkdir(filepath.Join(play.Base, "state"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return play
}

// The power is lost during the play, and again during a start that follows.
func TestAfterALossOfPowerEveryAcknowledgedLockIsThere(t *testing.T) {
	for _, p := range powerPlays {
		t.Run(p.name, func(t *testing.T) { p.begin(t).Test() })
	}
}

// playMove moves a lock into a state directory and then away from there.
func playMove(t *testing.T, base string) {
	s, err := OpenStopped(filepath.Join(base, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	hold := lock.Hold{Token: 3, Owner: locktest.Ada}
	records := []lock.Record{{Name: "/a_lock", Revision: 3, Holds: []lock.Hold{hold}}}
	err = s.Import(lock.Instant{}, records, 9, lines(lock.Entry{Cause: lock.CauseAcquire, Name: "/a_lock", Token: 3, Holds: records[0].Holds}))
	err = errors.Join(err, powerloss.Say("moved here"))
	_, rerr := s.Retire(time.Unix(0, 0))
	if err := errors.Join(err, rerr, powerloss.Say("moved away")); err != nil {
		t.Fatal(err)
	}
}

// moveComplaints opens a store on what a loss of power during a move has left, and returns what is wrong with it.
func moveComplaints(base string, said []string) []string {
	here, away := slices.Contains(said, "moved here"), slices.Contains(said, "moved away")
	store, err := powerPlay{}.open(base, false)
	if err != nil {
		if !here || !strings.Contains(err.Error(), "have moved to another store") {
			return []string{fmt.Sprintf("it does not start: %v", err)}
		}
		return nil
	}
	defer store.Close()
	held, past := 0, 0
	for range store.All(context.Background()) {
		held++
	}
	for range History(store.o.Dir, "/a_lock") {
		past++
	}
	switch {
	case away:
		return []string{"it starts, and the locks have moved away"}
	case held != past && !here, here && held == 0:
		return []string{fmt.Sprintf("%d holds, %d lines of history", held, past)}
	}
	return nil
}

func TestALossOfPowerDuringAMove(t *testing.T) {
	play := powerloss.NewPlay(t, "move", power, moveComplaints)
	if err := os.Mkdir(filepath.Join(play.Base, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := play.Record()
	if _, wrong := play.Try(r, 4*power.Most, nil); wrong != "" {
		t.Error(wrong)
	}
	for _, guard := range []string{"of the journal", "of its name"} {
		without := file("journal.new", "")
		if guard == "of its name" {
			without = directorySync("state", "")
		}
		if _, wrong := play.Try(r, 4*power.Most, without); wrong == "" {
			t.Errorf("without a sync %s nothing is wrong", guard)
		}
	}
}

// A recording in which a sync has no effect is what a server would do that lacks it. Each of them must be missed.
func TestNoSyncOfTheJournalCanBeLeftOut(t *testing.T) {
	for _, guard := range []struct {
		name, play string
		without    func(powerloss.Sync) bool
		want       string // what is wrong then
	}{
		{"before a grant is acknowledged", "acquire, release, acquire", file("journal.jsonl", "may "), "is held by nobody, want one of [ada]"},
		{"of reserved tokens", "not durable, a block of tokens", file("journal.jsonl", "did "), "said: "},
		{"of a new journal before it is renamed", "acquire on a fresh state directory", file("journal.new", ""), "does not start"},
		{"of a new journal in a rotation", "rotation", file("journal.new", "may "), "said: "},
		{"of the directory after the first journal", "acquire, release, acquire", directorySync("state", ""), "came twice"},
		{"of the directory after a rotation", "rotation", directorySync("state", "may "), "is held by"},
		{"of history before the journal's name is taken", "rotation", directorySync("state/history", "may "), "the history of"},
		{"of what is above a new state directory", "acquire on a fresh state directory", directorySync(".", ""), "came twice"},
	} {
		t.Run(guard.name, func(t *testing.T) {
			p := powerPlayNamed(guard.play).begin(t)
			r := p.Record()
			t.Parallel()
			images, wrong := p.Try(r, 4*power.Most, guard.without)
			if !strings.Contains(wrong, guard.want) {
				t.Errorf("of %d images the first that something is wrong with says %q, want %q; synced was %v", images, wrong, guard.want, r.Syncs())
			}
		})
	}
}

// A recovery in which a sync has no effect is what a server would do that lacks it. Each of them must be missed.
func TestNoSyncOfAStartCanBeLeftOut(t *testing.T) {
	const fresh, plain, rotation = "acquire on a fresh state directory", "acquire, release, acquire", "rotation"
	for _, guard := range []struct {
		name, play string
		killed     bool // the start comes after a kill, at each moment, not after a loss of power
		without    func(powerloss.Sync) bool
		want       string // what is wrong then
	}{
		{"of what is above the state directory", fresh, true, directorySync(".", ""), "came twice"},
		{"of the new journal's name", plain, false, directorySync("state", ""), "came twice"},
		{"of the new journal", plain, false, file("journal.new", ""), "said: "},
		{"of the old journal", "two releases", true, file("journal.jsonl", ""), "history of"},
		{"of history", rotation, false, directorySync("state/history", ""), "the history of"},
	} {
		t.Run(guard.name, func(t *testing.T) {
			p := powerPlayNamed(guard.play).begin(t)
			r := p.Record()
			images, n := r.Images(*power), 8*power.Twice
			if guard.killed {
				images, n = r.Kills(), 1000
			}
			var found []string
			for again := range p.Starts(images, n) {
				if _, wrong := p.Try(again, power.Most, nil); wrong != "" {
					t.Fatalf("with all syncs: %s", wrong)
				}
				looked, wrong := p.Try(again, 4*power.Most, guard.without)
				if strings.Contains(wrong, guard.want) {
					return
				}
				found = append(found, fmt.Sprintf("%d images, %q, synced was %v", looked, wrong, again.Syncs()))
			}
			t.Errorf("nothing that is wrong says %q:\n%s", guard.want, strings.Join(found, "\n"))
		})
	}
}

// file matches the syncs of a file that came when the last thing said began like this; "": when nothing had been said.
func file(base, after string) func(powerloss.Sync) bool {
	return func(s powerloss.Sync) bool {
		return !s.Directory && strings.HasSuffix(s.Path, "/"+base) && begins(s.After, after)
	}
}

func directorySync(path, after string) func(powerloss.Sync) bool {
	return func(s powerloss.Sync) bool { return s.Directory && s.Path == path && begins(s.After, after) }
}

func begins(text, with string) bool {
	return with == "" && text == "" || with != "" && strings.HasPrefix(text, with)
}
