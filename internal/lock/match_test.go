package lock

import (
	"strings"
	"testing"
)

// Wildcards that follow each other as in match have one value, so the work for a path does not grow with the ways to share it.
func TestWildcardsThatFollowEachOtherAsInMatchFitInOneWay(t *testing.T) {
	rules := mustRules(Rule{Match: "**/*-*_lock", Protection: &Protection{Paths: []string{"$1/$2-$3.tsv"}}})
	path := Name("/many/" + strings.Repeat("-", 240) + ".tsv")
	ways := 0
	if !rules.protectedPatterns[0].names(path, func(Name) { ways++ }) || ways != 1 {
		t.Errorf("%d ways", ways)
	}
}
