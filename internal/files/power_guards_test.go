package files

import (
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/powerloss"
)

// Without the effect of a sync, a loss of power must break a promise. This shows that the sync is needed, and that the test finds it.
func TestEachSyncOfAPublicationIsNeeded(t *testing.T) {
	const replaced, made = "a file is replaced twice", "a file in a new directory"
	for _, guard := range []struct {
		name, play string
		without    func(powerloss.Sync) bool
	}{
		{"of the content before the rename", replaced, isFile("root/a/" + prefix)},
		{"of the directory after the rename", replaced, isDirectory("root/a")},
		{"of what is above a new directory", made, isDirectory("root/new")},
		{"of what is above that", made, isDirectory("root")},
		{"of what is above the first new directory of several", "a tree in new directories", isDirectory("root")},
		{"of what is above the second", "a tree in new directories", isDirectory("root/x")},
		{"of what is above the last", "a tree in new directories", isDirectory("root/x/y")},
		{"of the directories after a rename", "a file is renamed", func(s powerloss.Sync) bool { return s.Directory }},
		{"of the directory after a removal", "a file is removed", isDirectory("root/a")},
	} {
		t.Run(guard.name, func(t *testing.T) {
			p := powerPlayNamed(guard.play).begin(t)
			r := p.Record()
			t.Parallel()
			images, wrong := p.Check(r, 4*power.Most, guard.without)
			if !strings.Contains(wrong, "want one of") {
				t.Errorf("nothing is wrong in any of %d images, %s; synced was %v", images, wrong, r.Syncs())
			}
		})
	}
}

// isFile matches the syncs of files whose path begins with begin. isDirectory matches those of one directory.
func isFile(begin string) func(powerloss.Sync) bool {
	return func(s powerloss.Sync) bool { return !s.Directory && strings.HasPrefix(s.Path, begin) }
}

func isDirectory(path string) func(powerloss.Sync) bool {
	return func(s powerloss.Sync) bool { return s.Directory && s.Path == path }
}
