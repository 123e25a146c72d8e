package journal

import (
	"sync"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// File systems write directories to disk within about half a minute. After a power failure a
// directory may be back that was removed within that time, and would look like one made on the host.
const (
	graveLife = 2 * time.Minute
	graveMax  = 8192 // so many are remembered across a rotation; the journal itself has all of them
)

// grave is the tombstone of a lock: which directory it had, and when that was removed.
type grave struct {
	name lock.Name
	id   lock.DirectoryID
	at   lock.Instant
}

// holds reports whether the directory that was seen is what the released lock left behind: the same one,
// or an older one that came back with the file system. By births, since then the file system's clock alone decides.
func (g grave) holds(seen sight) bool {
	switch {
	case !seen.directory:
		return false
	case seen.is(g.id):
		return true
	case g.id.Birth != 0 && seen.id.Birth != 0:
		return seen.id.Birth < g.id.Birth
	}
	return !seen.modified.After(g.at.Wall)
}

// graves are the youngest tombstones, for the next file of the journal.
type graves struct {
	mu   sync.Mutex
	ring []grave
	next int
}

func (g *graves) dig(one grave) {
	if one.id.Inode == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.ring) < graveMax {
		g.ring = append(g.ring, one)
		return
	}
	g.ring[g.next] = one
	g.next = (g.next + 1) % graveMax
}

// fresh returns those that still matter at now, oldest first.
func (g *graves) fresh(now lock.Instant) []grave {
	g.mu.Lock()
	defer g.mu.Unlock()
	var fresh []grave
	for i := range g.ring {
		one := g.ring[(g.next+i)%len(g.ring)]
		if since(one.at, now) < graveLife {
			fresh = append(fresh, one)
		}
	}
	return fresh
}
