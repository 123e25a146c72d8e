package journal

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// settled are the names whose directories were their holds' own at this start; true for those in which surely no
// other directory lies.
type settled map[lock.Name]bool

// glanceAt is how many directories one worker looks at in one go.
const glanceAt = 512

// glance looks at the directories of all records, many in one go, and returns the names of those which are their holds'
// own. With the others anything may be the matter; restore says what. The parents are watched by then, so
// that a later change is noticed.
func (s *Store) glance(ctx context.Context, records []lock.Record) settled {
	lists, ok := s.tree.fs.(Lists)
	if !ok {
		return nil
	}
	batches := batch(records)
	own, leaves := make([][]bool, len(batches)), make([][]bool, len(batches))
	var next atomic.Int64
	var running sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(batches)) {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(batches) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				own[i], leaves[i] = batches[i].look(lists)
			}
		})
	}
	running.Wait()
	names := make(settled, len(records))
	for i, b := range batches {
		for j, is := range own[i] {
			if is {
				names[b.records[j].Name] = leaves[i][j]
			}
		}
	}
	return names
}

// siblings are records of one directory.
type siblings struct {
	dir     lock.Name
	records []lock.Record
}

// batch sorts the records by directory, and cuts them into pieces of one go.
func batch(records []lock.Record) (full []siblings) {
	open := make(map[lock.Name]*siblings)
	for _, record := range records {
		dir := record.Name.Parent()
		b := open[dir]
		if b == nil {
			b = &siblings{dir: dir}
			open[dir] = b
		}
		if b.records = append(b.records, record); len(b.records) == glanceAt {
			full = append(full, *b)
			b.records = nil
		}
	}
	for _, b := range open {
		if len(b.records) > 0 {
			full = append(full, *b)
		}
	}
	return full
}

// look returns of each record whether its directory is its own, and whether surely none lies in that. What
// cannot be looked at is not.
func (b siblings) look(lists Lists) (own, leaves []bool) {
	own, leaves = make([]bool, len(b.records)), make([]bool, len(b.records))
	names := make([]string, len(b.records))
	for i, record := range b.records {
		names[i] = record.Name.Base()
	}
	// An error leaves the rest for restore, which meets it again and says so.
	_ = lists.Identities(string(b.dir), names, func(i int, inode uint64, birth int64, generation uint32, leaf bool) {
		known := directory(b.records[i])
		own[i] = known.Inode != 0 && known == lock.DirectoryID{Inode: inode, Birth: birth, Generation: generation}
		leaves[i] = leaf
	})
	return own, leaves
}
