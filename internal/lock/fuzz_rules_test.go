package lock_test

import (
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// FuzzRules compiles any glob and any pattern to a rule, and applies it to any name. A glob matches as doublestar does, and the locks of a
// protected path are names of locks.
func FuzzRules(f *testing.F) {
	for _, seed := range [][3]string{
		{"/locks/**", "", "/locks/a/b"}, {"**/*_lock", "$1/$2.tsv", "/a/phone_lock"}, {"**/phone_lock", "/$1/phone.tsv", "/phone.tsv"},
		{"/l/{a,b}*/[c-e]?", "/d/$1/$2/$3/$4", "/l/ax/cz"}, {`/\*/x`, "/y", "/*/x"}, {"**", "/a/$1", "/a"}, {"/é*", "$1\xff", "/\xff\xe9"},
		{"/l/*/x*y", "/f/$2$1", "/f/abab"}, {"/{a/b,c}", "/p$1", "/a/b"}, {"**/.*-lock", "$1/$2", "/a/.b-lock"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, match, protects, name string) {
		if name = path.Clean("/" + name); name == "/" || len(match) > 100 || len(name) > 200 {
			return
		}
		glob, err := lock.NewGlob(match)
		if err != nil {
			return
		}
		n := lock.Name(name)
		if rooted := "/" + strings.TrimPrefix(match, "/"); utf8.ValidString(rooted) && utf8.ValidString(name) {
			if got, want := glob.Match(n), doublestar.MatchUnvalidated(rooted, name); got != want {
				t.Errorf("%q matches %q: %v, want %v", match, name, got, want)
			}
		}
		rules, err := lock.NewRules([]lock.Rule{guarding(match, protects)})
		if err != nil {
			return
		}
		if _, isLock := rules.For(n); isLock && !glob.Match(n) {
			t.Errorf("%q is a lock, and %q does not match it", name, match)
		}
		guards, err := rules.Guards(n)
		if err != nil || len(guards) == 0 {
			return
		}
		if !rules.ProtectsBelow(n.Parent()) || !rules.ProtectsBelow("/") {
			t.Errorf("%q is protected by %q, and nothing is in its directory", name, guards)
		}
		for _, g := range guards {
			if _, isLock := rules.For(g); !isLock || path.Clean(string(g)) != string(g) {
				t.Errorf("%q is protected by %q, which is no lock", name, g)
			}
		}
	})
}
