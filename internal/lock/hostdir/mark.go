package hostdir

import (
	"crypto/rand"
	"io/fs"
	"sync"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// mark distinguishes a directory that this package made from one that a program on the host made.
type mark struct {
	sticky bool
	owner  int
}

func markOf(info fs.FileInfo) (m mark) {
	if sys, ok := info.Sys().(interface {
		Mark() (sticky bool, owner int)
	}); ok {
		m.sticky, m.owner = sys.Mark()
	}
	return m
}

// marks are the marks of this server's directories on each file system.
type marks struct {
	mu    sync.Mutex
	known map[uint64]mark // by device; not sticky where directories cannot be marked
}

// ours reports whether a directory has this server's mark. The file system is probed when a directory on it is seen to be
// sticky for the first time: mkdir must set the bit if asked to, and only then.
func (m *marks) ours(p *parent, s sight) bool {
	if !s.mark.sticky {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.known[s.device]
	if !ok {
		with, err := probe(p, 0o700|fs.ModeSticky)
		without, perr := probe(p, 0o700)
		if err != nil || perr != nil || with.device != s.device {
			return false // the next call tries again
		}
		if !without.mark.sticky {
			known = with.mark
		}
		m.known[s.device] = known
	}
	return known.sticky && known == s.mark
}

// probe makes a directory, returns what it looks like, and removes it. Clients do not see its name.
func probe(p *parent, perm fs.FileMode) (sight, error) {
	n := lock.Name(".ftplockd-leftover-probe-" + rand.Text())
	if err := p.Mkdir(n.Base(), perm); err != nil {
		return sight{}, err
	}
	defer p.RemoveDir(n.Base())
	return p.look(n)
}
