package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Act is one thing that a client does to a lock: Account acquires it, takes it over from whoever holds it, or, "", releases it.
// An act without a name takes a thousand tokens and changes nothing.
type Act struct {
	Name    lock.Name
	Account string
}

// Plays are what clients do in the tests of a crash and of a loss of power.
var (
	PlayOnce   = []Act{{"/a_lock", "ada"}}
	PlayThrice = []Act{{"/a_lock", "ada"}, {"/a_lock", ""}, {"/a_lock", "ben"}, {"/b_lock", "eve"}}
	PlayBusy   = []Act{
		{"/a_lock", "ada"}, {"/b_lock", "ada"}, {"/a_lock", ""}, {"/c_lock", "zoe"}, {"/b_lock", ""}, {"/a_lock", "eve"},
		{"/d_lock", "ada"}, {"/c_lock", ""}, {"/d_lock", ""}, {"/c_lock", "ben"}, {"/d_lock", "zoe"}, {"/b_lock", "ben"},
	}
	PlayMembers = []Act{
		{"/locks/g", "ada"}, {"/a_lock", "ada"}, {"/locks/g/m", "ben"}, {"/a_lock", "ben"}, {"/a_lock", ""},
		{"/a_lock", "eve"}, {"/locks/g/m", ""}, {"/b_lock", "ada"}, {"/locks/g/m", "eve"}, {"/b_lock", ""},
		{"/a_lock", ""}, {"/a_lock", "zoe"}, {"/locks/g/m", ""}, {"/locks/g", ""}, {"/c_lock", "ada"},
		{"/d_lock", "ada"}, {"/d_lock", "ben"}, {"/e_lock", "ada"}, {"/d_lock", "eve"}, {"/d_lock", ""},
	}
	PlayTokens = []Act{{"/a_lock", "ada"}, {}, {}, {}, {}, {}, {"/b_lock", "ben"}, {"/a_lock", ""}, {"/c_lock", "eve"}}
)

// Perform has clients do the acts on a store that was just opened. say is told what they are about to do, and what the store
// answered.
func Perform(store lock.Store, clock lock.Clock, acts []Act, say func(string) error) (err error) {
	revisions := make(map[lock.Name]lock.Token)
	for record, allErr := range store.All(context.Background()) {
		err = errors.Join(err, allErr)
		revisions[record.Name] = record.Revision
	}
	for _, a := range acts {
		err = errors.Join(err, a.do(store, clock, revisions, say))
	}
	return err
}

func (a Act) do(store lock.Store, clock lock.Clock, revisions map[lock.Name]lock.Token, say func(string) error) error {
	owner := lock.Owner{Account: a.Account, Address: "192.0.2.1", Session: 7}
	change := lock.Change{Name: a.Name, If: revisions[a.Name], Cause: lock.CauseRelease, By: owner}
	if a.Name == "" {
		change.Name = "/probe_lock"
		for range 1000 {
			if _, err := store.Commit(context.Background(), change); err != nil {
				return err
			}
		}
		return nil
	}
	who := "nobody"
	if a.Account != "" {
		who = a.Account
		now := clock.Now()
		change.Cause = lock.CauseAcquire
		change.Holds = []lock.Hold{{Owner: owner, Acquired: now, Renewed: now, Rule: lock.Rule{Match: "given", MaxAge: 3600e9}}}
	}
	if err := say(fmt.Sprintf("may %s %s", a.Name, who)); err != nil {
		return err
	}
	token, err := store.Commit(context.Background(), change)
	if err != nil {
		return fmt.Errorf("%v: %w", a, err)
	}
	revisions[a.Name] = token
	if a.Account == "" {
		revisions[a.Name] = 0
	}
	return say(fmt.Sprintf("did %s %s %d", a.Name, who, token))
}

// Found tells say who holds the locks of the acts, as a server that has just started does.
func Found(store lock.Store, acts []Act, say func(string) error) (err error) {
	holders := make(map[lock.Name]string)
	for record, allErr := range store.All(context.Background()) {
		err = errors.Join(err, allErr)
		holders[record.Name] = record.Holds[0].Owner.Account
	}
	seen := map[lock.Name]bool{"": true}
	for _, a := range acts {
		if seen[a.Name] {
			continue
		}
		seen[a.Name] = true
		who := holders[a.Name]
		if who == "" {
			who = "nobody"
		}
		err = errors.Join(err, say(fmt.Sprintf("found %s %s", a.Name, who)))
	}
	return err
}

// Told is what clients know who were told what Perform and Found said.
type Told struct {
	May    map[lock.Name][]string // who may hold it
	tokens map[lock.Name]map[string][]lock.Token
	last   lock.Token
	sure   bool
	// Freed are the names of which a server has said that nobody holds them any more.
	Freed []lock.Name
}

// Recall returns what clients know. lost says that the power failed, so that a release need not last, and without durable nothing does.
func Recall(said []string, lost, durable bool) *Told {
	t := &Told{May: make(map[lock.Name][]string), tokens: make(map[lock.Name]map[string][]lock.Token), sure: durable || !lost}
	for _, text := range said {
		var what, who string
		var name lock.Name
		var token lock.Token
		_, _ = fmt.Sscan(text, &what, &name, &who, &token)
		if what == "found" {
			t.May[name] = []string{who} // a start makes all last that it goes by
			if who == "nobody" && len(t.Granted(name)) > 0 {
				t.Freed = append(t.Freed, name)
			}
			continue
		}
		if what != "may" && what != "did" {
			continue
		}
		if t.May[name] == nil {
			t.May[name] = []string{"nobody"}
		}
		if t.tokens[name] == nil {
			t.tokens[name] = make(map[string][]lock.Token)
		}
		if what == "may" {
			t.May[name] = append(t.May[name], who)
			continue
		}
		t.last = token
		switch may := t.May[name]; {
		case t.sure && (who != "nobody" || !lost):
			t.May[name] = []string{who}
		case t.sure && len(may) > 2:
			t.May[name] = may[len(may)-2:] // who held it before may hold it still
		}
		t.tokens[name][who] = append(t.tokens[name][who], token)
	}
	return t
}

// Complaints compares a store that was opened after the crash with what clients know, and returns what is wrong.
func (t *Told) Complaints(store lock.Store) (all []string) {
	complain := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	holders := make(map[lock.Name]lock.Hold)
	for record, err := range store.All(context.Background()) {
		if err != nil {
			complain("All: %v", err)
			continue
		}
		holders[record.Name] = record.Holds[0]
		if t.May[record.Name] == nil {
			complain("%s is held and was never asked for", record.Name)
		}
	}
	for name, may := range t.May {
		who := "nobody"
		if hold, ok := holders[name]; ok {
			who = hold.Owner.Account
			if told := t.tokens[name][who]; t.sure && len(told) > 0 && len(may) == 1 && hold.Token != told[len(told)-1] {
				complain("%s has token %d, and %s was told %v", name, hold.Token, who, told)
			}
		}
		if !slices.Contains(may, who) {
			complain("%s is held by %s, want one of %v", name, who, may)
		}
	}
	next, err := store.Commit(context.Background(), lock.Change{Name: "/probe_lock", Cause: lock.CauseRelease})
	if err != nil || next <= t.last {
		complain("token %d after %d, %v", next, t.last, err)
	}
	return all
}

// Granted returns the tokens of the grants of a name that clients were told of.
func (t *Told) Granted(name lock.Name) (tokens []lock.Token) {
	for who, told := range t.tokens[name] {
		if who != "nobody" {
			tokens = append(tokens, told...)
		}
	}
	return tokens
}
