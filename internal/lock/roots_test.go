package lock_test

import (
	"slices"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestRootsAreWhereLocksCanBe(t *testing.T) {
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
		r, err := lock.NewRules(rules)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Roots(); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.globs, got, c.want)
		}
	}
}
