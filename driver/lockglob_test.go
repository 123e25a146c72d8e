package driver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestWhatAGlobOfLocksFits(t *testing.T) {
	for _, test := range []struct {
		glob, view string
		fits       bool
	}{
		{"**", "/a/b", true},
		{"/**", "/a", true},
		{"/a/**", "/a", true},
		{"/a/**", "/a/b/c", true},
		{"/a/**", "/b", false},
		{"**/*_lock", "/phone_lock", true},
		{"**/*_lock", "/a/b/phone_lock", true},
		{"**/*_lock", "/a/b/phone_lock/c", false},
		{"phone_lock", "/phone_lock", true},
		{"/a/*", "/a/b", true},
		{"/a/*", "/a/b/c", false},
		{"/a/**/c/*", "/a/c/b/c/d", true},
		{"/a/**/c/**/d", "/a/c/x/c/y/d", true},
		{"/a/**/c/**/d", "/a/c/x/c/y/e", false},
		{"/[ab]/?", "/b/x", true},
		{"/[ab]/?", "/c/x", false},
	} {
		glob, err := lockGlob(test.glob)
		if err != nil {
			t.Fatal(err)
		}
		if fits := doublestar.MatchUnvalidated(glob, test.view); fits != test.fits {
			t.Errorf("%s fits %s: %v", test.glob, test.view, fits)
		}
	}
}

// Thirty braces of two each are a thousand million globs: they kept a core busy for ever.
func TestAGlobOfBracesIsRefused(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		a := dial("phoneacc")
		a.want("MKD /locks/"+strings.Repeat("a", 40), "257 *")
		begun := time.Now()
		a.want("SITE LOCKS /locks/"+strings.Repeat("{*,?}", 30)+"x", "501 a pattern here has *, **, ? and [a-z], and no braces")
		a.want("SITE LOCKS /"+strings.Repeat("*a", 150), "501 a pattern has at most 256 bytes")
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestTheWorkOfAGlobIsBounded(t *testing.T) {
	s := start(t)
	a := s.as("phoneacc")
	a.want("MKD /locks/a", "257 *")
	s.driver.longestGlob = 0
	a.want("SITE LOCKS "+strings.Repeat("**/*a*a*b/", 20)+"x", "550 too much work for a pattern: shorten it")
}

func TestSoManyLocksAreShown(t *testing.T) {
	s := start(t, func(o *setup) { o.directories = false })
	holder := s.table.Open(lock.Owner{Account: "many"})
	for i := range maxShown + 5 {
		if _, _, err := holder.AcquireOrWait(t.Context(), lock.Name(fmt.Sprintf("/locks/%d", i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	a := s.as("phoneacc")
	listed := a.ask("SITE LOCKS")
	if n := strings.Count(listed, "\n"); n > maxShown+2 || !strings.Contains(listed, " and 5 more") {
		t.Errorf("%d lines", n)
	}
	if text := a.fetch("RETR /.locks.json"); strings.Count(text, `"path"`) != maxShown || !strings.Contains(text, `"more": 5`) {
		t.Errorf("the status file has %d bytes", len(text))
	}
}
