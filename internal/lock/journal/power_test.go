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

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/locktest"
	"github.com/ftplockd/ftplockd/internal/powerloss"
)

var power = powerloss.Flags(4)

// act is one thing that a client does: account acquires the lock of a name, or, "", releases it. An act without a name begins a
// new segment and rewrites the holds.
type act struct {
	name    lock.Name
	account string
}

// powerPlay is what the server does until the power fails: for each list of acts it opens the log once.
type powerPlay struct {
	name    string
	starts  [][]act
	durable bool
	fresh   bool // the state directory is made by the first start
	prune   bool // the history is as short as can be
}

var (
	playOnce = []act{{"/a_lock", "ada"}}
	playBusy = []act{
		{"/a_lock", "ada"}, {"/b_lock", "ada"}, {"/c_lock", "zoe"}, {"/a_lock", ""}, {}, {"/b_lock", ""}, {"/a_lock", "eve"},
		{"/d_lock", "ada"}, {"/c_lock", ""}, {}, {"/d_lock", ""}, {"/c_lock", "ben"}, {"/d_lock", "zoe"}, {"/b_lock", "ben"},
	}
	powerPlays = []powerPlay{
		{name: "acquire on a fresh state directory", starts: [][]act{playOnce}, durable: true, fresh: true},
		{name: "acquire, release, acquire", starts: [][]act{{{"/a_lock", "ada"}, {"/a_lock", ""}, {"/a_lock", "ben"}, {"/b_lock", "eve"}}}, durable: true},
		{name: "two starts", starts: [][]act{playOnce, {{"/b_lock", "ben"}}}, durable: true},
		{name: "two releases", starts: [][]act{{{"/a_lock", "ada"}, {"/b_lock", "ben"}, {"/a_lock", ""}, {"/b_lock", ""}}}, durable: true},
		{name: "segments", starts: [][]act{playBusy}, durable: true},
		{name: "old segments go", starts: [][]act{playBusy}, durable: true, prune: true},
		{name: "not durable", starts: [][]act{playBusy, playOnce}},
	}
)

func powerPlayNamed(name string) powerPlay {
	i := slices.IndexFunc(powerPlays, func(p powerPlay) bool { return p.name == name })
	return powerPlays[i]
}

// open opens a log below a directory. Its syncs count where the process is recorded, and cost nothing elsewhere. Each start is another boot,
// as after a loss of power.
func (p powerPlay) open(base string, recorded bool) (*Log, error) {
	o := Options{Dir: filepath.Join(base, "state"), Clock: lock.NewSystemClock(), Durable: p.durable, Size: 4 << 10}
	if p.prune {
		o.HistorySize = 1
	}
	if !recorded {
		withoutSyncs(&o)
	}
	return Open(o)
}

// perform opens a log in the process that is recorded, and has clients do the acts.
func (p powerPlay) perform(t *testing.T, base string, found, acts []act) {
	l, err := p.open(base, true)
	if err != nil {
		t.Fatal(err)
	}
	held := make(map[lock.Name]lock.Hold)
	for _, h := range l.loaded.Holds {
		held[h.Name] = h
	}
	say := func(format string, args ...any) { err = errors.Join(err, powerloss.Note(fmt.Sprintf(format, args...))) }
	say("started %d", l.loaded.Start)
	for _, a := range found {
		if a.name != "" {
			say("found %s %s", a.name, cmp.Or(held[a.name].Owner.Account, "nobody"))
		}
	}
	s := &scene{TB: t, clock: locktest.NewRunningClock()}
	for _, a := range acts {
		h, is := held[a.name]
		switch {
		case a.name == "":
			err = errors.Join(err, l.turn())
		case a.account != "":
			token, err := s.next(l)
			if err != nil {
				t.Fatal(err)
			}
			r := s.granted(a.name, token)
			if r.Hold.Owner.Account, r.Replaces = a.account, h.Token; is {
				r.Cause = lock.CauseAdopt
			}
			say("may %s %s", a.name, a.account)
			s.commit(l, r)
			say("did %s %s %d", a.name, a.account, r.Hold.Token)
			held[a.name] = r.Hold
		default:
			say("may %s nobody", a.name)
			s.release(l, h)
			say("did %s nobody %d", a.name, h.Token)
			delete(held, a.name)
		}
	}
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestPowerPlay is a play, in the process that is recorded.
func TestPowerPlay(t *testing.T) {
	if name, base := powerloss.Playing(); name != "" {
		p := powerPlayNamed(name)
		for _, acts := range p.starts {
			p.perform(t, base, nil, acts)
		}
	}
}

// TestPowerRecovery is a start after a play, in the process that is recorded: it tells clients who holds what, and gives one of them a lock.
func TestPowerRecovery(t *testing.T) {
	if name, base := powerloss.Playing(); name != "" {
		p := powerPlayNamed(name)
		p.perform(t, base, slices.Concat(p.starts...), []act{{"/late_lock", "eve"}})
	}
}

// told is what clients were told.
type told struct {
	may    map[lock.Name][]string   // who may hold it
	token  map[lock.Name]lock.Token // of the last grant, if that is known
	grants map[lock.Name][]lock.Token
	last   lock.Token
	start  uint32
}

// recall returns what clients were told before the power failed. A release need not survive that, and without durable nothing does.
func recall(said []string, durable bool) *told {
	k := &told{may: make(map[lock.Name][]string), token: make(map[lock.Name]lock.Token), grants: make(map[lock.Name][]lock.Token)}
	for _, text := range said {
		var what, name, who string
		var token lock.Token
		if _, err := fmt.Sscanf(text, "started %d", &k.start); err == nil {
			continue
		}
		_, _ = fmt.Sscan(text, &what, &name, &who, &token)
		n := lock.Name(name)
		may := k.may[n]
		if may == nil {
			may = []string{"nobody"}
		}
		switch {
		case what == "found":
			may = []string{who} // a start syncs what it found
			k.token[n] = 0      // it may be a grant of which the client was not told
		case what == "may":
			may = append(may, who)
		case who == "nobody":
			if durable && len(may) > 2 {
				may = may[len(may)-2:] // who held it before may hold it still
			}
		default:
			k.last, k.token[n] = token, token
			k.grants[n] = append(k.grants[n], token)
			if durable {
				may = []string{who}
			}
		}
		k.may[n] = may
	}
	return k
}

// complaints opens a log on what a loss of power left, and returns what is wrong with it.
func (p powerPlay) complaints(base string, said []string) (all []string) {
	complain := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	l, err := p.open(base, false)
	if err != nil {
		complain("it does not start: %v", err)
		return all
	}
	defer l.Close()
	k := recall(said, p.durable)
	if l.loaded.Start <= k.start {
		complain("start %d came twice", l.loaded.Start)
	}
	if l.loaded.Last < k.last {
		complain("tokens go on after %d, and %d was given", l.loaded.Last, k.last)
	}
	holders := make(map[lock.Name]lock.Hold)
	for _, h := range l.loaded.Holds {
		holders[h.Name] = h
		if k.may[h.Name] == nil {
			complain("%s is held and was never asked for", h.Name)
		}
	}
	granted := make(map[lock.Name][]lock.Token) // in the history
	for e, err := range l.History(context.Background(), "") {
		if err != nil {
			complain("history: %v", err)
		}
		if e.Cause == lock.CauseAcquire || e.Cause == lock.CauseAdopt {
			granted[e.Name] = append(granted[e.Name], e.Token)
		}
	}
	for name, may := range k.may {
		h := holders[name]
		if who := cmp.Or(h.Owner.Account, "nobody"); !slices.Contains(may, who) {
			complain("%s is held by %s, want one of %v", name, who, may)
		}
		if p.durable && len(may) == 1 && h.Token != 0 && k.token[name] != 0 && h.Token != k.token[name] {
			complain("%s has token %d, and its holder was told %d", name, h.Token, k.token[name])
		}
		tokens := granted[name]
		for _, token := range k.grants[name] {
			if p.durable && !p.prune && !slices.Contains(tokens, token) {
				complain("the history of %s lacks token %d", name, token)
			}
		}
		if slices.Sort(tokens); len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
			complain("the history of %s has %v", name, tokens)
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

// A recording in which a sync has no effect is what a server would do that lacks it. Each of them must be missed.
func TestNoSyncOfTheJournalCanBeLeftOut(t *testing.T) {
	const twice, fresh = "acquire, release, acquire", "acquire on a fresh state directory"
	for _, guard := range []struct {
		name, play string
		start      string // "": the play itself; otherwise a start after the loss of "power", or after a "kill" at each moment
		without    func(powerloss.Sync) bool
		want       string // what is wrong then
	}{
		{"before a grant is acknowledged", twice, "", fileSync("00000001.log", "may "), "is held by nobody, want one of [ada]"},
		{"of a new journal before it is renamed", fresh, "", fileSync("spare", ""), "it does not start"},
		{"of the directory after the first segment", twice, "", directorySync("state/journal", ""), "came twice"},
		{"of the directory before a new segment", "segments", "", directorySync("state/journal", "did "), "notes: "},
		{"of the old segment before the new one", "segments", "", fileSync("00000001.log", "did "), "it does not start"},
		{"of a header before older segments go", "old segments go", "", fileSync("00000003.log", "did "), "is missing"},
		{"of what is above a new state directory", fresh, "", directorySync(".", ""), "came twice"},
		{"of the old segment by a start", "two releases", "kill", fileSync("00000001.log", ""), "history"},
		{"of the new segment by a start", twice, "power", fileSync("spare", ""), "notes: "},
		{"of its name by a start", twice, "power", directorySync("state/journal", ""), "came twice"},
	} {
		t.Run(guard.name, func(t *testing.T) {
			p := powerPlayNamed(guard.play).begin(t)
			r := p.Record()
			recordings := slices.Values([]*powerloss.Recording{r})
			switch guard.start {
			case "power":
				recordings = p.Starts(r.Images(*power), 8*power.Twice)
			case "kill":
				recordings = p.Starts(r.Kills(), 1000)
			default:
				t.Parallel()
			}
			var found []string
			for r := range recordings {
				images, wrong := p.Check(r, 4*power.Most, guard.without)
				if strings.Contains(wrong, guard.want) {
					return
				}
				found = append(found, fmt.Sprintf("%d images, %q, synced was %v", images, wrong, r.Syncs()))
			}
			t.Errorf("nothing that is wrong contains %q:\n%s", guard.want, strings.Join(found, "\n"))
		})
	}
}

// fileSync matches the syncs of a file that came when the last thing said began like this; "": when nothing had been said.
func fileSync(base, after string) func(powerloss.Sync) bool {
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
