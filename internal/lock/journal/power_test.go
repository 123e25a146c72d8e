//go:build linux

package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/powerloss"
)

// The process whose writes are recorded is this test binary: these say what it does and where.
const (
	powerPlayEnv = "JOURNAL_POWER_PLAY"
	powerRootEnv = "JOURNAL_POWER_ROOT"
)

// powerTree is a hostTree of which directories that are removed can be brought back.
type powerTree struct {
	*hostTree
	base string
}

func (p powerTree) RemoveDir(name string) error { return powerloss.Rmdir(p.base, p.real(name)) }

// powerClock is the system's clock, with a boot that all processes of the test share.
type powerClock struct{}

func (powerClock) Now() lock.Instant {
	now := time.Now()
	return lock.Instant{Wall: now, Boot: now.Sub(time.Unix(1_500_000_000, 0)), BootID: "00000000-0000-4000-8000-000000000002"}
}

// powerPlay is what the server does until the power fails: open stores one after the other, and in each of them acts.
type powerPlay struct {
	name        string
	stores      [][]act // an act on "" is a thousand tokens that are taken without a line
	durable     bool
	directories bool
	maxSize     int64
	fresh       bool // the state directory is made by the first store
}

var (
	once   = []act{{"/a_lock", "ada"}}
	thrice = []act{{"/a_lock", "ada"}, {"/a_lock", ""}, {"/a_lock", "ben"}, {"/b_lock", "eve"}}
	busy   = []act{
		{"/a_lock", "ada"}, {"/b_lock", "ada"}, {"/a_lock", ""}, {"/c_lock", "zoe"}, {"/b_lock", ""}, {"/a_lock", "eve"},
		{"/d_lock", "ada"}, {"/c_lock", ""}, {"/d_lock", ""}, {"/c_lock", "ben"}, {"/d_lock", "zoe"}, {"/b_lock", "ben"},
	}
	thousands = []act{{"/a_lock", "ada"}, {"", ""}, {"", ""}, {"", ""}, {"", ""}, {"", ""}, {"/b_lock", "ben"}, {"/a_lock", ""}, {"/c_lock", "eve"}}
)

var powerPlays = []powerPlay{
	{name: "acquire on a fresh state directory", stores: [][]act{once}, durable: true, fresh: true},
	{name: "acquire, release, acquire", stores: [][]act{thrice}, durable: true},
	{name: "acquire, release, acquire, with directories", stores: [][]act{thrice}, durable: true, directories: true},
	{name: "two starts", stores: [][]act{once, {{"/b_lock", "ben"}}}, durable: true, directories: true},
	{name: "rotation", stores: [][]act{busy}, durable: true, maxSize: 1300},
	{name: "rotation with directories", stores: [][]act{busy}, durable: true, directories: true, maxSize: 1800},
	{name: "a block of tokens", stores: [][]act{thousands}, durable: true},
	{name: "not durable", stores: [][]act{busy, once}, maxSize: 1500},
	{name: "not durable, a block of tokens", stores: [][]act{thousands}},
}

func powerPlayNamed(name string) powerPlay {
	i := slices.IndexFunc(powerPlays, func(p powerPlay) bool { return p.name == name })
	return powerPlays[i]
}

// open opens a store below a directory; its syncs count where the process is recorded and cost nothing elsewhere.
func (p powerPlay) open(base string, recorded bool) (*Store, error) {
	o := Options{
		Dir: filepath.Join(base, "state"), Rules: lockRule, Clock: powerClock{}, Durable: p.durable, MaxSize: p.maxSize,
		Log: slog.New(slog.DiscardHandler),
	}
	if p.directories {
		o.FS = powerTree{&hostTree{root: filepath.Join(base, "files")}, base}
	}
	o.hooks.room = powerRoom
	if !recorded {
		o.hooks.wrap = func(f journalFile) journalFile { return unsynced{f} }
	}
	return Open(context.Background(), o)
}

// powerRoom is so little that journals outgrow it.
const powerRoom = 1000

// TestPowerPlay is a play, in the process that is recorded.
func TestPowerPlay(t *testing.T) {
	name := os.Getenv(powerPlayEnv)
	if name == "" {
		return // it is no test of its own
	}
	if err := powerPlayNamed(name).play(os.Getenv(powerRootEnv)); err != nil {
		t.Fatal(err)
	}
}

func (p powerPlay) play(base string) error {
	for _, acts := range p.stores {
		store, err := p.open(base, true)
		if err != nil {
			return err
		}
		err = powerloss.Say(fmt.Sprint("started ", store.Generation()))
		revisions := make(map[lock.Name]lock.Token)
		for record, allErr := range store.All(context.Background()) {
			err = errors.Join(err, allErr)
			revisions[record.Name] = record.Revision
		}
		for _, a := range acts {
			err = errors.Join(err, a.do(store, revisions))
		}
		if err := errors.Join(err, store.Close()); err != nil {
			return err
		}
	}
	return nil
}

// do does what the act says, and says so before and after.
func (a act) do(store *Store, revisions map[lock.Name]lock.Token) error {
	change := lock.Change{Name: a.name, If: revisions[a.name], Cause: lock.CauseRelease, By: ada}
	if a.name == "" {
		change.Name = "/probe_lock"
		for range 1000 {
			if _, err := store.Commit(context.Background(), change); err != nil {
				return err
			}
		}
		return nil
	}
	if a.account != "" {
		now := powerClock{}.Now()
		owner := ada
		owner.Account = a.account
		change.Cause, change.By = lock.CauseAcquire, owner
		change.Holds = []lock.Hold{{Owner: owner, Acquired: now, Renewed: now, Rule: lock.Rule{Match: "given", MaxAge: time.Hour}}}
	}
	who := a.account
	if who == "" {
		who = "nobody"
	}
	if err := powerloss.Say(fmt.Sprintf("may %s %s", a.name, who)); err != nil {
		return err
	}
	token, err := store.Commit(context.Background(), change)
	if err != nil {
		return err
	}
	revisions[a.name] = token
	if a.account == "" {
		revisions[a.name] = 0
	}
	return powerloss.Say(fmt.Sprintf("did %s %s %d", a.name, who, token))
}

// powerMemory is what clients were told, or may hope for, when the power failed.
type powerMemory struct {
	may        map[lock.Name][]string // who may hold it
	tokens     map[lock.Name]map[string][]lock.Token
	last       lock.Token
	generation uint32
}

func recall(said []string, durable bool) *powerMemory {
	m := &powerMemory{may: make(map[lock.Name][]string), tokens: make(map[lock.Name]map[string][]lock.Token)}
	for _, text := range said {
		var what, who string
		var name lock.Name
		var token lock.Token
		if _, err := fmt.Sscanf(text, "started %d", &m.generation); err == nil {
			continue
		}
		if _, err := fmt.Sscanf(text, "found %s %s", &name, &who); err == nil {
			m.may[name] = []string{who} // a start makes all last that it goes by
			continue
		}
		_, _ = fmt.Sscan(text, &what, &name, &who, &token)
		if m.may[name] == nil {
			m.may[name], m.tokens[name] = []string{"nobody"}, make(map[string][]lock.Token)
		}
		if what == "may" {
			m.may[name] = append(m.may[name], who)
			continue
		}
		m.last = token
		switch {
		case who != "nobody" && durable:
			m.may[name] = []string{who}
		case durable && len(m.may[name]) > 2:
			m.may[name] = m.may[name][len(m.may[name])-2:] // who held it before may hold it still: a release need not last
		}
		m.tokens[name][who] = append(m.tokens[name][who], token)
	}
	return m
}

// complaints opens a store on what a power failure has left and returns what is wrong with it.
func (p powerPlay) complaints(base string, said []string) (all []string) {
	complain := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	store, err := p.open(base, false)
	if err != nil {
		complain("it does not start: %v", err)
		return all
	}
	defer store.Close()
	m := recall(said, p.durable)
	if store.Generation() <= m.generation {
		complain("generation %d came twice", store.Generation())
	}
	records := make(map[lock.Name]lock.Record)
	for record, err := range store.All(context.Background()) {
		if err != nil {
			complain("All: %v", err)
		}
		records[record.Name] = record
		if m.may[record.Name] == nil {
			complain("%s is held and was never asked for", record.Name)
		}
	}
	for name, may := range m.may {
		who := "nobody"
		if holds := records[name].Holds; len(holds) > 0 {
			who = holds[0].Owner.Account
			if told := m.tokens[name][who]; p.durable && len(told) > 0 && len(may) == 1 && holds[0].Token != told[len(told)-1] {
				complain("%s has token %d, and %s was told %v", name, holds[0].Token, who, told)
			}
		}
		if !slices.Contains(may, who) {
			complain("%s is held by %s, want one of %v", name, who, may)
		}
		if p.directories {
			info, err := os.Lstat(filepath.Join(base, "files", string(name)))
			if there := err == nil && info.IsDir(); there != (who != "nobody") {
				complain("%s is held by %s; that it has a directory is %v", name, who, there)
			}
		}
		if p.durable {
			m.checkHistory(store, name, complain)
		}
	}
	next, err := store.Commit(context.Background(), lock.Change{Name: "/probe_lock", Cause: lock.CauseRelease})
	if err != nil || next <= m.last {
		complain("token %d after %d, %v", next, m.last, err)
	}
	return all
}

// checkHistory looks for every grant that was acknowledged.
func (m *powerMemory) checkHistory(store *Store, name lock.Name, complain func(string, ...any)) {
	var found []lock.Token
	for entry, err := range History(store.o.Dir, name) {
		if err != nil {
			complain("history of %s: %v", name, err)
			return
		}
		found = append(found, entry.Token)
	}
	for who, told := range m.tokens[name] {
		for _, token := range told {
			if who != "nobody" && !slices.Contains(found, token) {
				complain("the history of %s lacks token %d, which %s was given", name, token, who)
			}
		}
	}
}

// record has a process of its own play, and records it.
func (p powerPlay) record(t *testing.T) (*powerloss.Recording, string) {
	t.Helper()
	base := powerloss.Dir(t)
	dirs := []string{base, filepath.Join(base, "files")}
	if !p.fresh {
		dirs = append(dirs, filepath.Join(base, "state"))
	}
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return powerloss.RecordTest(t, base, "TestPowerPlay", powerPlayEnv+"="+p.name, powerRootEnv+"="+base), base
}

// try looks at the images up to the first one that something is wrong with, and returns how many there were.
func (p powerPlay) try(t *testing.T, r *powerloss.Recording, base string, o powerloss.Options) (looked int, complaint string) {
	t.Helper()
	return r.Try(t, o, func(said []string) []string { return p.complaints(base, said) })
}

func TestAfterALossOfPowerEveryAcknowledgedLockIsThere(t *testing.T) {
	for _, p := range powerPlays {
		t.Run(p.name, func(t *testing.T) {
			r, base := p.record(t)
			t.Parallel() // not before: a process that is being started has the locks of all others open for a moment
			images, wrong := p.try(t, r, base, powerloss.Options{Seed: *powerSeed, Most: *powerMost})
			if wrong != "" {
				t.Errorf("seed %d: %s", *powerSeed, wrong)
			}
			t.Logf("%d images", images)
		})
	}
}
