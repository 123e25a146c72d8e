package lock

import "testing"

// A reload discards the looks of running jobs unless each automatic lock stays the same.
func TestAnAutomaticLockIsTheSameIfItsRuleIs(t *testing.T) {
	compile := func(match, protects string, a Automatic) *pattern {
		rules, err := NewRules([]Rule{{Match: match, Protection: &Protection{Paths: []string{protects}}, Automatic: &a}})
		if err != nil {
			t.Fatal(err)
		}
		return rules.automaticPatterns[0]
	}
	base := compile("/l", "/www/**", Automatic{})
	for name, c := range map[string]struct {
		with *pattern
		same bool
	}{
		"itself":          {compile("/l", "/www/**", Automatic{}), true},
		"another name":    {compile("/m", "/www/**", Automatic{}), false},
		"other paths":     {compile("/l", "/web/**", Automatic{}), false},
		"a report":        {compile("/l", "/www/**", Automatic{Report: true}), false},
		"jobs by session": {compile("/l", "/www/**", Automatic{Session: true}), false},
	} {
		if got := base.sameLock(c.with); got != c.same {
			t.Errorf("%s: %v, want %v", name, got, c.same)
		}
	}
}
