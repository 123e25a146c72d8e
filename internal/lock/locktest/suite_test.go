package locktest

import (
	"context"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryPassesTheSuite(t *testing.T) {
	TestStore(t, func(t *testing.T) lock.Store { return NewMemory() })
}

// failures runs one case of the suite, or all (""), with stores from open and returns the names of those that failed.
func failures(t testing.TB, open func() lock.Store, only string) (failed []string) {
	for _, c := range cases {
		r := &recorder{TB: t}
		if only == "" || only == c.name {
			r.run(func() { c.run(&fixture{Moves{TB: r}, open()}) })
		}
		if r.Failed() {
			failed = append(failed, c.name)
		}
	}
	return failed
}

// flaws are what is wrong with a broken store.
type flaws struct {
	checkThenAct    bool // looks, lets others in, then writes
	reusesTokens    bool // counts per name
	repeatsTokens   bool // begins anew after a release
	ignoresIf       bool
	bareConflict    bool // the conflict has no record
	keepsReleased   bool // a released name goes on having a revision
	keepsFirst      bool // of several holds only the first
	renumbers       bool // gives every hold the new revision
	sharesSlices    bool
	ignoresContext  bool
	foldsCase       bool
	needsUTF8       bool
	decodesPercent  bool
	tellsOwn        bool // Watch yields one's own changes
	changesAnyway   bool // fails after the change
	losesFields     bool
	watchesForever  bool
	cutsNames       bool
	stopsAtFirst    bool // All yields one record
	writesToCallers bool // numbers the caller's own holds
	getsFirst       bool // Get tells of the first hold alone
	getsForever     bool // Get does not look at its context
}

// broken is a store with flaws.
type broken struct {
	flaws
	*Memory
	mu      sync.Mutex
	counts  map[lock.Name]lock.Token
	records map[lock.Name]lock.Record
	last    lock.Token
}

func newBroken(f flaws) *broken {
	return &broken{
		flaws: f, Memory: NewMemory(), counts: make(map[lock.Name]lock.Token), records: make(map[lock.Name]lock.Record),
	}
}

func (b *broken) name(n lock.Name) lock.Name {
	switch {
	case b.foldsCase:
		return lock.Name(strings.ToLower(string(n)))
	case b.needsUTF8:
		return lock.Name(strings.ToValidUTF8(string(n), "?"))
	case b.decodesPercent:
		return lock.Name(strings.ReplaceAll(string(n), "%41", "A"))
	case b.cutsNames && len(n) > 200:
		return n[:200]
	}
	return n
}

func (b *broken) Commit(ctx context.Context, c lock.Change) (lock.Token, error) {
	if err := ctx.Err(); err != nil && !b.ignoresContext {
		return 0, err
	}
	c.Name = b.name(c.Name)
	b.mu.Lock()
	defer b.mu.Unlock()
	record := b.records[c.Name]
	if record.Revision != c.If && !b.ignoresIf {
		if b.changesAnyway {
			b.set(c)
		}
		if b.bareConflict {
			return 0, &lock.ConflictError{Record: lock.Record{Name: c.Name}}
		}
		record.Name = c.Name
		if !b.sharesSlices {
			record = clone(record)
		}
		return 0, &lock.ConflictError{Record: record}
	}
	if b.checkThenAct {
		b.mu.Unlock()
		runtime.Gosched()
		b.mu.Lock()
	}
	return b.set(c), nil
}

func (b *broken) set(c lock.Change) lock.Token {
	token := b.number(c)
	if !b.sharesSlices && !b.writesToCallers {
		c.Holds = clone(lock.Record{Holds: c.Holds}).Holds
	}
	if b.keepsFirst && len(c.Holds) > 1 {
		c.Holds = c.Holds[:1]
	}
	for i := range c.Holds {
		if c.Holds[i].Token == 0 || b.renumbers {
			c.Holds[i].Token = token
		}
		if b.losesFields {
			c.Holds[i].Ended = lock.Instant{}
		}
	}
	if len(c.Holds) == 0 && !b.keepsReleased {
		delete(b.records, c.Name)
	} else {
		b.records[c.Name] = lock.Record{Name: c.Name, Revision: token, Holds: c.Holds}
	}
	if b.tellsOwn {
		b.Outside(c.Name, c.Cause, c.Holds...)
	}
	return token
}

func (b *broken) number(c lock.Change) lock.Token {
	switch {
	case b.reusesTokens:
		b.counts[c.Name]++
		return b.counts[c.Name]
	case b.repeatsTokens && len(c.Holds) == 0:
		b.last--
		return b.last + 1
	}
	b.last++
	return b.last
}

func (b *broken) Get(ctx context.Context, n lock.Name) (lock.Record, error) {
	if err := ctx.Err(); err != nil && !b.getsForever {
		return lock.Record{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	record := b.records[b.name(n)]
	if !b.sharesSlices {
		record = clone(record)
	}
	if b.getsFirst && len(record.Holds) > 1 {
		record.Holds = record.Holds[:1]
	}
	record.Name = n
	return record, nil
}

func (b *broken) All(ctx context.Context) iter.Seq2[lock.Record, error] {
	b.mu.Lock()
	defer b.mu.Unlock()
	var records []lock.Record
	for _, r := range b.records {
		if len(r.Holds) == 0 {
			continue
		}
		if !b.sharesSlices {
			r = clone(r)
		}
		records = append(records, r)
	}
	return func(yield func(lock.Record, error) bool) {
		for _, r := range records {
			if ctx.Err() != nil {
				yield(lock.Record{}, ctx.Err())
				return
			}
			if !yield(r, nil) || b.stopsAtFirst {
				return
			}
		}
	}
}

func (b *broken) Watch(ctx context.Context) iter.Seq[lock.Event] {
	if !b.watchesForever {
		return b.Memory.Watch(ctx)
	}
	return func(yield func(lock.Event) bool) { yield(lock.Event{}) }
}

func TestABrokenStoreFailsTheSuite(t *testing.T) {
	if failed := failures(t, func() lock.Store { return newBroken(flaws{}) }, ""); len(failed) != 0 {
		t.Fatalf("without a flaw it fails %q", failed)
	}
	for name, c := range map[string]struct {
		flaws flaws
		fails string // this case among others
	}{
		"check, then act":             {flaws{checkThenAct: true}, "one of many wins a free name"},
		"tokens of their own by name": {flaws{reusesTokens: true}, "tokens grow over names and releases"},
		"tokens begin anew":           {flaws{repeatsTokens: true}, "tokens grow over names and releases"},
		"If is ignored":               {flaws{ignoresIf: true}, "a conflict carries the record and changes nothing"},
		"conflict without a record":   {flaws{bareConflict: true}, "a conflict carries the record and changes nothing"},
		"a release is no end":         {flaws{keepsReleased: true}, "acquire, release, acquire again"},
		"one hold of several":         {flaws{keepsFirst: true}, "several holds share a name"},
		"old holds get new tokens":    {flaws{renumbers: true}, "a hold keeps its token through changes"},
		"slices are shared":           {flaws{sharesSlices: true}, "what the caller does with its slices does not matter"},
		"slices are written to":       {flaws{writesToCallers: true}, "what the caller does with its slices does not matter"},
		"the context is ignored":      {flaws{ignoresContext: true}, "a cancelled context changes nothing"},
		"case is folded":              {flaws{foldsCase: true}, "names are bytes"},
		"names are made UTF-8":        {flaws{needsUTF8: true}, "names are bytes"},
		"percent is decoded":          {flaws{decodesPercent: true}, "names are bytes"},
		"long names are cut off":      {flaws{cutsNames: true}, "names are bytes"},
		"own changes are watched":     {flaws{tellsOwn: true}, "one's own changes are not watched"},
		"an error after the change":   {flaws{changesAnyway: true}, "a conflict carries the record and changes nothing"},
		"a field is lost":             {flaws{losesFields: true}, "a hold comes back as it was given"},
		"Watch knows no end":          {flaws{watchesForever: true}, "Watch ends with its context"},
		"All stops early":             {flaws{stopsAtFirst: true}, "All yields every held name"},
		"Get shares its slices":       {flaws{sharesSlices: true}, "Get shares nothing with the caller"},
		"Get tells of one hold":       {flaws{getsFirst: true}, "Get tells who holds a name"},
		"Get ignores the context":     {flaws{getsForever: true}, "Get ends with its context"},
	} {
		t.Run(name, func(t *testing.T) {
			only := ""
			if c.flaws.sharesSlices { // the cases with many goroutines would be data races
				only = c.fails
			}
			if failed := failures(t, func() lock.Store { return newBroken(c.flaws) }, only); !slices.Contains(failed, c.fails) {
				t.Errorf("it fails %q, which lacks %q", failed, c.fails)
			}
		})
	}
}
