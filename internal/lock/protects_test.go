package lock_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// guarding is a rule whose locks protect the paths.
func guarding(match string, paths ...string) lock.Rule {
	return lock.Rule{Match: match, MaxAge: 6 * time.Minute, Protection: &lock.Protection{Paths: paths}}
}

var article = guarding("**/*_lock", "$1/$2.tsv")

func TestGuardsReturnsTheLocksOfAPath(t *testing.T) {
	for _, c := range []struct {
		rules []lock.Rule
		path  lock.Name
		want  string
	}{
		// ** may be empty: then its slash is left out, too.
		{[]lock.Rule{article}, "/phone.tsv", "/phone_lock"},
		{[]lock.Rule{article}, "/a/phone.tsv", "/a/phone_lock"},
		{[]lock.Rule{article}, "/a/b/c/phone.tsv", "/a/b/c/phone_lock"},
		{[]lock.Rule{article}, "/.tsv", "/_lock"},
		{[]lock.Rule{article}, "/phone.tsv2", ""},
		{[]lock.Rule{article}, "/phone.tsv/x", ""},
		{[]lock.Rule{article}, "/phone_lock", ""},
		{[]lock.Rule{article}, "/", ""},
		{[]lock.Rule{article}, "/a.tsv/b.tsv", "/a.tsv/b_lock"},
		{[]lock.Rule{guarding("**/phone_lock", "$1/phone.*")}, "/x/phone.csv", "/x/phone_lock"},
		{[]lock.Rule{guarding("**/phone_lock", "$1/phone.*")}, "/phone.csv", "/phone_lock"},
		{[]lock.Rule{guarding("/locks/**", "/data/$1")}, "/data/a/b", "/locks/a/b"},
		{[]lock.Rule{guarding("/locks/**", "/data/$1")}, "/data", ""},
		{[]lock.Rule{guarding("/locks/*", "/data/$1/**")}, "/data/a/b/c", "/locks/a"},
		{[]lock.Rule{guarding("/locks/*", "/data/$1/**")}, "/data/a", "/locks/a"},
		{[]lock.Rule{guarding("/locks/**", "/data/$1/**")}, "/data/a/b", "/locks/a /locks/a/b"},
		{[]lock.Rule{guarding("/locks/x", "/data/**")}, "/data/a/b", "/locks/x"},
		// Names that look like globs are themselves and nothing else.
		{[]lock.Rule{article}, "/*.tsv", "/*_lock"},
		{[]lock.Rule{article}, "/a/[p-z]{x,y}?.tsv", "/a/[p-z]{x,y}?_lock"},
		{[]lock.Rule{article}, `/a\b.tsv`, `/a\b_lock`},
		{[]lock.Rule{article}, "/$1.tsv", "/$1_lock"},
		{[]lock.Rule{article}, "/**/x.tsv", "/**/x_lock"},
		{[]lock.Rule{guarding(`/\*_*`, `/s/\$1$1`)}, "/s/$1x", "/*_x"},
		{[]lock.Rule{guarding(`/$1_*`, `/s/$1`)}, "/s/x", "/$1_x"},
		// Bytes that are no UTF-8.
		{[]lock.Rule{article}, "/\xff\xfe.tsv", "/\xff\xfe_lock"},
		{[]lock.Rule{guarding("/l/?", "/d/$1.x")}, "/d/\xff.x", "/l/\xff"},
		{[]lock.Rule{guarding("/l/?", "/d/$1.x")}, "/d/\u00e4.x", "/l/\u00e4"},
		{[]lock.Rule{guarding("/l/?", "/d/$1.x")}, "/d/ab.x", ""},
		{[]lock.Rule{guarding("/l/?", "/d/$1.x")}, "/d/.x", ""},
		{[]lock.Rule{guarding("/l/[a-c]x", "/d/$1")}, "/d/b", "/l/bx"},
		{[]lock.Rule{guarding("/l/[a-c]x", "/d/$1")}, "/d/d", ""},
		{[]lock.Rule{guarding("/l/{one,two}", "/d/$1.t")}, "/d/two.t", "/l/two"},
		{[]lock.Rule{guarding("/l/{one,two}", "/d/$1.t")}, "/d/three.t", ""},
		{[]lock.Rule{guarding("/l/*", "/d/$1.{tsv,csv}")}, "/d/a.csv", "/l/a"},
		{[]lock.Rule{guarding("/l/*", "/d/$1.{tsv,csv}")}, "/d/a.txt", ""},
		{[]lock.Rule{guarding("/l/*", "/d/$1.[\xfe]")}, "/d/a.\xff", ""},
		{[]lock.Rule{guarding("/l/*", "/d/$1.[\xfe]")}, "/d/a.\xfe", "/l/a"},
		{[]lock.Rule{guarding("/l/*", "/d/$1.t", "/d/$1.*")}, "/d/a.t", "/l/a"},
		// The same wildcard twice, and two in one element.
		{[]lock.Rule{guarding("/l/*", "/d/$1/$1.t")}, "/d/a/a.t", "/l/a"},
		{[]lock.Rule{guarding("/l/*", "/d/$1/$1.t")}, "/d/a/b.t", ""},
		{[]lock.Rule{guarding("/l/**", "/d/$1/x/$1/t")}, "/d/a/b/x/a/b/t", "/l/a/b"},
		{[]lock.Rule{guarding("/l/*-*", "/d/$2-$1")}, "/d/a-b-c", "/l/b-c-a /l/c-a-b"},
		{[]lock.Rule{guarding("/l/*-*", "/d/$1-$2.t")}, "/d/a-b-c.t", "/l/a-b-c"},
		{[]lock.Rule{guarding("/l/*-*", "/d/$1-$2.t")}, "/d/abc.t", ""},
		{[]lock.Rule{guarding("/l/*-?*x*_lock", "/d/a$1-$2$3x$4.t")}, "/d/a1-2-3x4.t", "/l/1-2-3x4_lock"},
		{[]lock.Rule{guarding("/l/*-*-*", "/d/$1-$2/$3")}, "/d/a-b-c/d", "/l/a-b-c-d"},
		{[]lock.Rule{guarding("/l/*-*", "/d/$1-$2/$1")}, "/d/a-b-c/a", "/l/a-b-c"},
		{[]lock.Rule{guarding("/l/*-*", "/d/$1-$2/$1")}, "/d/a-b-c/a-b", "/l/a-b-c"},
		{[]lock.Rule{guarding("/l/*-*", "/d/$1-$2/$1")}, "/d/a-b-c/b", ""},
		{[]lock.Rule{guarding("/l/*", "/d/$1.*")}, "/d/a.b.c", "/l/a /l/a.b"},
		{[]lock.Rule{guarding("/l/*", "/d/$1.*")}, "/d/\xff.\xfe.\xff", "/l/\xff /l/\xff.\xfe"},
		{[]lock.Rule{guarding("/l/*", "/d/$1.{t,json}")}, "/d/a.t.json", "/l/a.t"},
		{[]lock.Rule{guarding("/l/*", "/d/*.*/$1")}, "/d/a.b.c/x", "/l/x"},
		{[]lock.Rule{guarding("/l/*", "/d/**/$1/**")}, "/d/a/b", "/l/a /l/b"},
		// No lock has such a name.
		{[]lock.Rule{guarding("/l/*/x", "/d/a$1")}, "/d/a", ""},
		{[]lock.Rule{guarding("/l/*/x", "/d/a$1")}, "/d/a..", ""},
		{[]lock.Rule{guarding("/l/*/x", "/d/a$1")}, "/d/a.", ""},
		{[]lock.Rule{guarding("/l/*/x", "/d/a$1")}, "/d/ab", "/l/b/x"},
		// The first rule that matches makes the lock; what another one protects is none of its business.
		{[]lock.Rule{{Match: "/a/*_lock"}, article}, "/a/x.tsv", ""},
		{[]lock.Rule{{Match: "/a/*_lock"}, article}, "/b/x.tsv", "/b/x_lock"},
		// The name of a lock is no file.
		{[]lock.Rule{guarding("/www/.lock", "/www/**")}, "/www/.lock", ""},
		{[]lock.Rule{guarding("/www/.lock", "/www/**")}, "/www/a", "/www/.lock"},
		{[]lock.Rule{guarding("/l/*", "/d/$1/**"), {Match: "**/*_lock"}}, "/d/a/x_lock", ""},
		{[]lock.Rule{guarding("/l/*", "/d/$1/**"), {Match: "**/*_lock"}}, "/d/a/x", "/l/a"},
		// Several rules protect one path.
		{[]lock.Rule{guarding("/l/all", "/d/**"), guarding("/l/*", "/d/$1.t", "/e/$1")}, "/d/x.t", "/l/all /l/x"},
		{[]lock.Rule{guarding("/l/all", "/d/**"), guarding("/l/*", "/d/$1.t", "/d/*/$1")}, "/d/all.t", "/l/all"},
	} {
		guards, err := rulesOf(t, c.rules...).Guards(c.path)
		var got []string
		for _, n := range guards {
			got = append(got, string(n))
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%v, %q: %q, %v; want %q", c.rules[0].Protection, c.path, got, err, c.want)
		}
	}
}

func TestAPathThatFitsInTooManyWaysIsRefused(t *testing.T) {
	rules := rulesOf(t, guarding("/l/*", "/d/$1-*"), guarding("/m/**", "/e/$1/**"))
	for _, path := range []string{"/d/" + strings.Repeat("-", 250), "/d/x-" + strings.Repeat("y", 2000), "/e" + strings.Repeat("/a", 1000)} {
		if _, err := rules.Guards(lock.Name(path)); !errors.Is(err, fs.ErrPermission) {
			t.Error(path, err)
		}
		if !rules.ProtectsBelow(lock.Name(path).Parent()) {
			t.Errorf("%s: nothing below it is protected", path)
		}
	}
	if guards, err := rules.Guards("/d/a-b-c"); err != nil || !slices.Equal(guards, []lock.Name{"/l/a", "/l/a-b"}) {
		t.Error(guards, err)
	}
}

func TestALinkLeadsAroundLocksElsewhere(t *testing.T) {
	for _, c := range []struct {
		match, protects string
		dir             lock.Name
		want            bool
	}{
		{"/locks/*", "/www/$1/index.html", "/www/a", true},
		{"/locks/*", "/www/$1/index.html", "/www", true},
		{"/locks/*", "/www/$1/index.html", "/other", false},
		{"/locks/*", "/www/$1/index.html", "/www/a/b", false},
		{"/www/*/.lock", "/www/$1/**", "/www/a/b", true},
		// The directory of the lock is the link's, too.
		{"**/*_lock", "$1/$2.tsv", "/a/b", false},
		{"**/*_lock", "$1/$2.d/*", "/a/b", false},
		{"**/*_lock", "$1/$2.d/*", "/a/b.d", true},
		{"**/*_lock", "$1/$2.d/**", "/a/b.d/c", true},
		{"/a/**/*_lock", "/a/$1/$2.tsv", "/a/b", true},
	} {
		if got := rulesOf(t, guarding(c.match, c.protects)).ProtectsThroughLink(c.dir); got != c.want {
			t.Errorf("%s for %s, link %s: %v", c.protects, c.match, c.dir, got)
		}
	}
}

func TestProtectsBelowReportsProtectedPaths(t *testing.T) {
	rules := rulesOf(t, guarding("/l/*", "/d/$1/x*/y", "/e/[ab]/$1"))
	for dir, want := range map[lock.Name]bool{
		"/": true, "/d": true, "/d/any": true, "/d/any/x1": true, "/d/any/z": false, "/d/any/x/y": false, "/d/any/x/y/z": false,
		"/dd": false, "/l": false, "/e/a": true, "/e/c": false,
	} {
		if got := rules.ProtectsBelow(dir); got != want {
			t.Errorf("%s: %v", dir, got)
		}
	}
	if rules := rulesOf(t, article); !rules.ProtectsBelow("/any/where") {
		t.Error("a ** fits below everything")
	}
	if rulesOf(t).ProtectsBelow("/") || rulesOf(t).Protects() {
		t.Error("nothing is protected")
	}
}

func TestBadProtectedPathsAreRefused(t *testing.T) {
	for _, c := range []struct {
		rules []lock.Rule
		want  string
	}{
		{[]lock.Rule{guarding("/l/*", "/d/$2")}, "protects[1]: $2: match has one wildcard"},
		{[]lock.Rule{guarding("/l/*", "/d/$1", "/e/$0$1")}, "protects[2]: $0: match has one wildcard"},
		{[]lock.Rule{guarding("/l/*/**", "/d/$1/$2/$3")}, "$3: match has 2 wildcards"},
		{[]lock.Rule{guarding("/l/x", "/d/$1")}, "$1: match has no wildcards"},
		{[]lock.Rule{guarding("/l/*", "/d/$99999999999999999999")}, "no such number"},
		{[]lock.Rule{guarding("**/*_lock", "/x/$2")}, "lacks $1: any number of locks would protect the same path"},
		{[]lock.Rule{guarding("/l/**", "/d/a$1")}, "$1 stands for a **, so there must be nothing else between its slashes"},
		{[]lock.Rule{guarding("/l/**", "/d/$1.t")}, "$1 stands for a **, so there must be nothing else"},
		{[]lock.Rule{guarding("/l/*", "/d/[$1")}, "is no glob"},
		{[]lock.Rule{guarding("/l/*", "")}, "is no glob"},
		{[]lock.Rule{guarding("/l/*", "/d//$1")}, "fits no path"},
		{[]lock.Rule{guarding("/l/*", "/d/../$1")}, "fits no path"},
		{[]lock.Rule{guarding("/l/*", "/d/$1/")}, "fits no path"},
		{[]lock.Rule{guarding("/l/*", "/{a,b/c}/$1")}, "has a slash in it"},
		{[]lock.Rule{guarding("/{a,b/c}/*", "/d/$1$2")}, "has a slash in it"},
		{[]lock.Rule{guarding("/l/*-*-*", "/d/$3-$2-$1")}, "protects[1]: its wildcards can share a text in too many ways"},
		{[]lock.Rule{guarding("/l/*-*", "/d/$2-$1*")}, "in too many ways"},
		{[]lock.Rule{guarding("/l/*", "/d/**/$1/**/x/**")}, "in too many ways"},
		{[]lock.Rule{guarding("**/*_lock", "$1/**/$2.*")}, "in too many ways"},
		// All that it fits are names of locks.
		{[]lock.Rule{guarding("/l/*", "/d/$1"), {Match: "/d/?"}}, `protects no file: /d/~ is the name of a lock of rule 2 (match "/d/?")`},
		{[]lock.Rule{guarding("/l/*", "/d/x/$1"), {Match: "/d/**"}}, "is the name of a lock of rule 2"},
		{[]lock.Rule{guarding("/l/*", "/d/[bc]$1"), {Match: "/{d,e}/**"}}, "protects no file: /d/c~ is the name of a lock of rule 2"},
		{[]lock.Rule{guarding("/l/*", "/d/{one,two}/$1"), {Match: "/d/*/*"}}, "protects no file: /d/one/~"},
		{[]lock.Rule{article, {Match: "**"}}, "is the name of a lock of rule 2"},
	} {
		_, err := lock.NewRules(c.rules)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), fmt.Sprintf("(match %q)", c.rules[0].Match)) {
			t.Errorf("%v %v\n got %v\nwant %s", c.rules[0].Match, c.rules[0].Protection, err, c.want)
		}
	}
}

func FuzzGuards(f *testing.F) {
	f.Add("/a/phone.tsv")
	f.Add("/*.tsv")
	rules, err := lock.NewRules([]lock.Rule{article, guarding("/l/**", "/d/$1/**/x")})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if path == "" || path[0] != '/' || strings.Contains(path, "//") || strings.Contains(path+"/", "/./") || strings.Contains(path+"/", "/../") || len(path) > 1 && strings.HasSuffix(path, "/") {
			return
		}
		guards, err := rules.Guards(lock.Name(path))
		if err != nil {
			return
		}
		base, ok := strings.CutSuffix(path, ".tsv")
		if ok != slices.Contains(guards, lock.Name(base+"_lock")) {
			t.Errorf("%q: %q", path, guards)
		}
		for _, n := range guards {
			if _, ok := rules.For(n); !ok {
				t.Errorf("%q: %q is no lock", path, n)
			}
		}
	})
}

func TestProtectedByNamesPaths(t *testing.T) {
	for _, c := range []struct{ match, protects, name, want string }{
		{"**/*_lock", "$1/$2.tsv", "/a/b/phone_lock", "/a/b/phone.tsv"},
		{"**/*_lock", "$1/$2.tsv", "/phone_lock", "/phone.tsv"},
		{"/sites/*/.lock", "/sites/$1/**", "/sites/one/.lock", "/sites/one/**"},
		{"/www/.lock", "/www/*.html", "/www/.lock", "/www/*.html"},
	} {
		rules, err := lock.NewRules([]lock.Rule{{Match: c.match, Protection: &lock.Protection{Paths: []string{c.protects}}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := rules.ProtectedBy(lock.Name(c.name)); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s protects %q, want %s", c.name, got, c.want)
		}
		if got := rules.ProtectedBy("/no/rule"); got != nil {
			t.Errorf("a name without a rule protects %q", got)
		}
	}
}
