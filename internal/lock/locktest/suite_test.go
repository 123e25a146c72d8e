package locktest

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"strings"
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

// broken is a Memory with a flaw. What is nil is as it should be.
type broken struct {
	*Memory
	name   func(lock.Name) lock.Name // what it takes names for
	before func(m *Memory, c *lock.Change)
	after  func(m *Memory, c lock.Change, token lock.Token, err error) (lock.Token, error)
	reads  func(lock.Record) lock.Record // what Get and All make of a record

	endless      bool // contexts do not matter to Commit and Get
	stopsAtFirst bool // All yields one record
	watch        func() iter.Seq[lock.Event]
}

func (b *broken) Commit(ctx context.Context, c lock.Change) (lock.Token, error) {
	if b.endless {
		ctx = context.Background()
	}
	if b.name != nil {
		c.Name = b.name(c.Name)
	}
	given := c
	if b.before != nil {
		c.Holds = slices.Clone(c.Holds)
		b.before(b.Memory, &c)
	}
	token, err := b.Memory.Commit(ctx, c)
	if b.after != nil {
		return b.after(b.Memory, given, token, err)
	}
	return token, err
}

func (b *broken) Get(ctx context.Context, n lock.Name) (lock.Record, error) {
	if b.endless {
		ctx = context.Background()
	}
	record, err := b.Memory.Get(ctx, n)
	if b.reads != nil {
		record = b.reads(record)
	}
	return record, err
}

func (b *broken) All(ctx context.Context) iter.Seq2[lock.Record, error] {
	return func(yield func(lock.Record, error) bool) {
		for record, err := range b.Memory.All(ctx) {
			if b.reads != nil {
				record = b.reads(record)
			}
			if !yield(record, err) || b.stopsAtFirst {
				return
			}
		}
	}
}

func (b *broken) Watch(ctx context.Context) iter.Seq[lock.Event] {
	if b.watch != nil {
		return b.watch()
	}
	return b.Memory.Watch(ctx)
}

// revision is where the record of a name is.
func revision(m *Memory, n lock.Name) lock.Token {
	record, _ := m.Get(context.Background(), n)
	return record.Revision
}

// sharing is a store that gives and takes slices without a copy.
func sharing() *broken {
	kept := make(map[lock.Token][]lock.Hold)
	reads := func(r lock.Record) lock.Record {
		if kept[r.Revision] != nil {
			r.Holds = kept[r.Revision]
		}
		return r
	}
	return &broken{reads: reads, after: func(_ *Memory, c lock.Change, token lock.Token, err error) (lock.Token, error) {
		if kept[token] = slices.Clip(c.Holds); err != nil {
			delete(kept, token)
		}
		return token, err
	}}
}

// changed makes an error of what a change was before it is made.
func changed(f func(h *lock.Hold)) *broken {
	return &broken{before: func(_ *Memory, c *lock.Change) {
		for i := range c.Holds {
			f(&c.Holds[i])
		}
	}}
}

// renamed is a store that takes names for others.
func renamed(name func(string) string) *broken {
	return &broken{name: func(n lock.Name) lock.Name { return lock.Name(name(string(n))) }}
}

// numbered is a store that returns other revisions than those of its records.
func numbered(number func(c lock.Change, token lock.Token) lock.Token) *broken {
	return &broken{after: func(_ *Memory, c lock.Change, token lock.Token, err error) (lock.Token, error) {
		if err != nil {
			return 0, err
		}
		return number(c, token), nil
	}}
}

// flaws are broken stores by the case of the suite that each fails, among others.
var flaws = map[string][]func() *broken{
	"one of many wins a free name": {func() *broken { // it looks, lets others in, then writes
		return &broken{before: func(m *Memory, c *lock.Change) {
			if revision(m, c.Name) == c.If {
				runtime.Gosched()
				c.If = revision(m, c.Name)
			}
		}}
	}},
	"tokens grow over names and releases": {
		func() *broken {
			return numbered(func(_ lock.Change, token lock.Token) lock.Token { return 1 + token/2 })
		},
		func() *broken {
			return numbered(func(c lock.Change, token lock.Token) lock.Token { return token * lock.Token(len(c.Holds)) })
		},
	},
	"acquire, release, acquire again": {func() *broken { // a release is no end
		released := make(map[lock.Name]bool)
		return &broken{before: func(_ *Memory, c *lock.Change) {
			if released[c.Name] = released[c.Name] || len(c.Holds) == 0; released[c.Name] && c.If == 0 {
				c.If = 1
			}
		}}
	}},
	"a conflict carries the record and changes nothing": {
		func() *broken {
			return &broken{before: func(m *Memory, c *lock.Change) { c.If = revision(m, c.Name) }} // it ignores If
		},
		func() *broken {
			return &broken{after: func(_ *Memory, c lock.Change, token lock.Token, err error) (lock.Token, error) {
				if errors.Is(err, lock.ErrConflict) {
					err = &lock.ConflictError{Record: lock.Record{Name: c.Name}}
				}
				return token, err
			}}
		},
		func() *broken { // it changes something, and then it fails
			return &broken{after: func(m *Memory, c lock.Change, token lock.Token, err error) (lock.Token, error) {
				if err != nil {
					m.Outside(c.Name, c.Cause, c.Holds...)
				}
				return token, err
			}}
		},
	},
	"several holds share a name": {func() *broken {
		return &broken{before: func(_ *Memory, c *lock.Change) { c.Holds = c.Holds[:min(1, len(c.Holds))] }}
	}},
	"a hold keeps its token through changes": {func() *broken { return changed(func(h *lock.Hold) { h.Token = 0 }) }},
	"a hold comes back as it was given":      {func() *broken { return changed(func(h *lock.Hold) { h.Ended = lock.Instant{} }) }},
	"what the caller does with its slices does not matter": {sharing, func() *broken { // it writes to them
		return &broken{after: func(_ *Memory, c lock.Change, token lock.Token, err error) (lock.Token, error) {
			for i := range c.Holds {
				c.Holds[i].Token = token
			}
			return token, err
		}}
	}},
	"a cancelled context changes nothing": {func() *broken { return &broken{endless: true} }},
	"Get ends with its context":           {func() *broken { return &broken{endless: true} }},
	"names are bytes": {
		func() *broken { return renamed(strings.ToLower) },
		func() *broken { return renamed(func(n string) string { return strings.ToValidUTF8(n, "?") }) },
		func() *broken { return renamed(func(n string) string { return strings.ReplaceAll(n, "%41", "A") }) },
		func() *broken { return renamed(func(n string) string { return n[:min(len(n), 200)] }) },
	},
	"one's own changes are not watched": {func() *broken {
		return &broken{after: func(m *Memory, c lock.Change, token lock.Token, err error) (lock.Token, error) {
			m.Tell(c.Name, c.Cause)
			return token, err
		}}
	}},
	"Watch ends with its context": {func() *broken {
		return &broken{watch: func() iter.Seq[lock.Event] {
			return func(yield func(lock.Event) bool) { yield(lock.Event{}) }
		}}
	}},
	"All yields every held name":         {func() *broken { return &broken{stopsAtFirst: true} }},
	"Get shares nothing with the caller": {sharing},
	"Get tells who holds a name": {func() *broken {
		return &broken{reads: func(r lock.Record) lock.Record { r.Holds = r.Holds[:min(1, len(r.Holds))]; return r }}
	}},
}

func TestABrokenStoreFailsTheSuite(t *testing.T) {
	if failed := failures(t, func() lock.Store { return &broken{Memory: NewMemory()} }, ""); len(failed) != 0 {
		t.Fatalf("without a flaw it fails %q", failed)
	}
	for name, all := range flaws {
		for _, flaw := range all {
			open := func() lock.Store {
				b := flaw()
				b.Memory = NewMemory()
				return b
			}
			if failed := failures(t, open, name); len(failed) == 0 {
				t.Errorf("a store passes the case %q that must not", name)
			}
		}
	}
}
