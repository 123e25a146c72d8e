package lock_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestGlobMatchesBytes(t *testing.T) {
	for _, test := range []struct {
		glob string
		yes  []lock.Name
		no   []lock.Name
	}{
		{"/phone_lock", []lock.Name{"/phone_lock"}, []lock.Name{"/a/phone_lock", "/phone_lock/a", "/PHONE_LOCK"}},
		{"phone_lock", []lock.Name{"/phone_lock"}, []lock.Name{"/a/phone_lock"}},
		{"**/phone_lock", []lock.Name{"/phone_lock", "/a/phone_lock", "/\xff/\xfe/phone_lock"}, []lock.Name{"/a_phone_lock", "/Phone_lock"}},
		{"**/*_lock", []lock.Name{"/a_lock", "/_lock", "/x/\xe9_lock", "/a\nb_lock"}, []lock.Name{"/lock", "/a_lock/b", "/a_LOCK"}},
		{"/locks/**", []lock.Name{"/locks/a", "/locks/a/b", "/locks/\x01\xff"}, []lock.Name{"/lock", "/locksmith", "/a/locks/b"}},
		{"**", []lock.Name{"/a", "/a/b", "/\xc3("}, nil},
		{"/jobs/*/lock", []lock.Name{"/jobs/a/lock", "/jobs/\xe9\xff/lock"}, []lock.Name{"/jobs/lock", "/jobs/a/b/lock"}},
		{"/j/?_lock", []lock.Name{"/j/a_lock", "/j/\xe9_lock", "/j/é_lock"}, []lock.Name{"/j/_lock", "/j/ab_lock", "/j/\xe9\xff_lock", "/j//_lock"}},
		{"/j/[a-c]", []lock.Name{"/j/b"}, []lock.Name{"/j/d", "/j/\xe9", "/j/B"}},
		{"/j/[^a]", []lock.Name{"/j/b", "/j/\xe9"}, []lock.Name{"/j/a"}},
		{"/{a,b}/x", []lock.Name{"/a/x", "/b/x"}, []lock.Name{"/c/x"}},
		{`/a\*b`, []lock.Name{"/a*b"}, []lock.Name{"/axb", "/a/b"}},
		{"/*\xe9", []lock.Name{"/a\xe9"}, []lock.Name{"/a\xe8", "/a\uFFFD", "/aé"}},
		{"/\uFFFD*", []lock.Name{"/\uFFFDa"}, []lock.Name{"/\xe9a"}},
		{"/a/**/z", []lock.Name{"/a/z", "/a/b/z", "/a/b/\xff/z"}, []lock.Name{"/a/bz", "/z"}},
	} {
		glob, err := lock.NewGlob(test.glob)
		if err != nil {
			t.Errorf("%q: %v", test.glob, err)
			continue
		}
		for _, n := range test.yes {
			if !glob.Match(n) {
				t.Errorf("%q does not match %q", test.glob, n)
			}
		}
		for _, n := range test.no {
			if glob.Match(n) {
				t.Errorf("%q matches %q", test.glob, n)
			}
		}
	}
}

func TestBadGlobIsRefused(t *testing.T) {
	for _, glob := range []string{"", "/", "a[", "/a/", "/a//b", "/a/./b", "../a", "{a,b", "[]", `\/a`, `/a\/b`, `/\\\/b`} {
		if _, err := lock.NewGlob(glob); err == nil {
			t.Errorf("%q: no error", glob)
		}
	}
	if _, err := lock.NewGlob(`/a\\/b`); err != nil { // an escaped backslash
		t.Error(err)
	}
}

func TestFixedPrefixIsNeverALock(t *testing.T) {
	rules := rulesOf(t,
		lock.Rule{Match: "/srv/jobs/*/lock", MaxAge: time.Minute},
		lock.Rule{Match: "/locks/**", MaxAge: time.Minute},
		lock.Rule{Match: "**", MaxAge: time.Minute},
	)
	for _, n := range []lock.Name{"/", "/locks", "/srv", "/srv/jobs"} {
		if _, ok := rules.For(n); ok {
			t.Errorf("%s is a lock", n)
		}
	}
	if _, ok := rules.For("/srv/other"); !ok {
		t.Error("/srv/other is no lock")
	}
	want := []lock.Name{"/locks", "/srv", "/srv/jobs"}
	if got := rules.Prefixes(); !slices.Equal(got, want) {
		t.Errorf("prefixes %q, want %q", got, want)
	}
	if got := rulesOf(t).Prefixes(); !slices.Equal(got, []lock.Name{"/locks"}) {
		t.Errorf("prefixes of the defaults: %q", got)
	}
}

func TestBadRulesAreNamedAllAtOnce(t *testing.T) {
	_, err := lock.NewRules([]lock.Rule{{Match: "/good/**"}, {Match: "/a["}, {Match: "/good"}, {Match: ""}})
	if err == nil {
		t.Fatal("no error")
	}
	for text, said := range map[string]bool{
		`lock rule 2 (match "/a["): bad glob "/a["`:         true,
		`another rule needs this name as a plain directory`: true,
		`lock rule 4 (match ""): the glob is empty`:         true,
		"rule 1 ": false,
	} {
		if strings.Contains(err.Error(), text) != said {
			t.Errorf("said or not: %s\nin: %v", text, err)
		}
	}
}

func TestRootsContainAllLocks(t *testing.T) {
	for _, c := range []struct {
		globs []string
		want  []lock.Name
	}{
		{[]string{"/locks/**"}, []lock.Name{"/locks"}},
		{[]string{"/locks/**", "**/*_lock"}, nil},
		{[]string{"/a/b/**", "/a/**", "/a/c/*"}, []lock.Name{"/a"}},
		{[]string{"/a/**", "/ab/*_lock", "/a/b/**"}, []lock.Name{"/a", "/ab"}},
		{[]string{"/phone_lock"}, nil},
	} {
		var rules []lock.Rule
		for _, g := range c.globs {
			rules = append(rules, lock.Rule{Match: g})
		}
		if got := rulesOf(t, rules...).Roots(); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.globs, got, c.want)
		}
	}
}

// rulesOf compiles rules; some, if none are given.
func rulesOf(t *testing.T, rules ...lock.Rule) *lock.Rules {
	t.Helper()
	if rules == nil {
		rules = []lock.Rule{
			{Match: "/locks/**", MaxAge: 10 * time.Minute, Contention: &lock.Contention{Members: lock.MembersAnyone}},
			{Match: "**/*_lock", MaxAge: 6 * time.Minute},
		}
	}
	r, err := lock.NewRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
