package hostdir

import (
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestABirthThatIsNotRecordedEqualsEachOther(t *testing.T) {
	for _, c := range []struct {
		seen, had lock.DirectoryID
		want      bool
	}{
		{lock.DirectoryID{Inode: 1, Birth: 7}, lock.DirectoryID{Inode: 1, Birth: 7}, true},
		{lock.DirectoryID{Inode: 1, Birth: 7}, lock.DirectoryID{Inode: 1, Birth: 8}, false},
		{lock.DirectoryID{Inode: 1, Birth: 7}, lock.DirectoryID{Inode: 2, Birth: 7}, false},
		{lock.DirectoryID{Inode: 1}, lock.DirectoryID{Inode: 1, Birth: 8}, true},
		{lock.DirectoryID{Inode: 1, Birth: 7}, lock.DirectoryID{Inode: 1}, true},
		{lock.DirectoryID{Inode: 1, Birth: onlyMarked}, lock.DirectoryID{Inode: 1, Birth: 7}, true},
		{lock.DirectoryID{Inode: 1, Birth: 7}, lock.DirectoryID{Inode: 1, Birth: onlyMarked}, false}, // without the mark
	} {
		if got := (entry{directory: true, id: c.seen}).matches(c.had); got != c.want {
			t.Errorf("%+v is %+v: %v, want %v", c.seen, c.had, got, c.want)
		}
	}
	if (entry{id: lock.DirectoryID{Inode: 1}}).matches(lock.DirectoryID{Inode: 1}) {
		t.Error("a file is a directory")
	}
}
