package files

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// parentsMax is how many directories are kept open.
	parentsMax = 256
	// parentsDepth is how deep they may lie: below that, looking each element up costs more than opening the path.
	parentsDepth = 3
)

// parents keeps directories open (O_PATH) in which something is done again and again, with those above them, so that
// the next time each needs one look rather than an open and a close of its path.
//
// What use gives is what opening the path anew would give: from the root on, each element is looked at without
// following a link, and counts if it still is the very directory that was opened, by device and inode number. Being open keeps the
// number from being used again. Where the system tells of changes (vacancies.go), that is done again only after one. As with
// openat2, what is renamed behind the look is not noticed.
//
// Only directories on the root's own mount are kept: an open descriptor would keep others from being unmounted. One that was
// removed or moved is closed when it is next looked for, or when its place is needed.
type parents struct {
	root int       // the descriptor of the tree's root; -1: nothing is kept
	home mountedOn // of the root

	mu     sync.Mutex
	kept   map[string]*parent
	missed map[string]struct{} // names that were looked for once: the second time they are kept

	// See vacancies.go; guarded by mu, too.
	deaf    bool  // the system tells of no changes
	news    *news // nil until the first directory is watched
	watched map[int]*parent
	changes uint64 // how often something was heard
	top     parent // the root, which is always open
}

// parent is a directory that is kept open.
type parent struct {
	in    *parents
	name  string  // the clean FTP path
	base  string  // its last element
	above *parent // that the base is in, which is kept open as long as this one; nil: the root
	fd    int
	is    inode
	used  bool // since somebody looked for a place; guarded by parents.mu
	users int  // one for being kept, and each use and each parent below; guarded by parents.mu

	sound     bool                // it was seen to stand, and nothing was heard of the directories above since; guarded by parents.mu
	watch     int                 // in parents.watched; 0: not watched yet, -1: it cannot be; guarded by parents.mu
	vacancies map[string]struct{} // names in it that were seen vacant, and nothing was heard of it since; guarded by parents.mu
}

// inode tells a directory that is open from all others.
type inode struct{ device, number uint64 }

// mountedOn tells on which mount of which file system a directory is.
type mountedOn struct{ device, mount uint64 }

// init makes it ready for a tree with that root.
func (ps *parents) init(rootfd int) {
	ps.root = -1
	home, _, err := look(rootfd)
	if err != nil { // a kernel that tells no mounts is before 5.8
		return
	}
	ps.root, ps.home = rootfd, home
	ps.top = parent{in: ps, name: "/", fd: rootfd}
	ps.deaf, ps.watched = !newsworthy(rootfd), make(map[int]*parent)
	ps.kept, ps.missed = make(map[string]*parent), make(map[string]struct{})
}

// use returns the directory with that clean path, or nil: then the path is to be opened. It has no links in it. done must follow.
func (ps *parents) use(name string) *parent {
	p, m, sound := ps.takeSound(name)
	if p == nil || sound {
		return p
	}
	if !p.stands(ps.root) {
		ps.drop(p)
		p.done()
		return nil
	}
	ps.settle(m)
	return p
}

// take returns what is kept, for one more user; if nothing is, it is opened if it was looked for before.
func (ps *parents) take(name string) *parent {
	if ps.root < 0 || name == "/" {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.takeLocked(name)
}

func (ps *parents) takeLocked(name string) *parent {
	p := ps.kept[name]
	if p == nil {
		p = ps.missLocked(name)
	}
	if p != nil {
		p.used = true
		p.users++
	}
	return p
}

// missLocked opens the directory if it was looked for before. It holds the mutex meanwhile, or two would do the same.
func (ps *parents) missLocked(name string) *parent {
	if depth(name) > parentsDepth {
		return nil
	}
	if _, again := ps.missed[name]; !again {
		if len(ps.missed) >= parentsMax {
			clear(ps.missed)
		}
		ps.missed[name] = struct{}{}
		return nil
	}
	delete(ps.missed, name)
	return ps.openLocked(name)
}

// openLocked opens a directory, and those above it that are not open yet; nil: it cannot be kept.
func (ps *parents) openLocked(name string) *parent {
	if p := ps.kept[name]; p != nil {
		return p
	}
	dir, base := split(name)
	p := &parent{in: ps, name: name, base: base, users: 1, used: true}
	at := ps.root
	if dir != "/" {
		if p.above = ps.openLocked(dir); p.above == nil {
			return nil
		}
		at = p.above.fd
	}
	fd, err := unix.Openat(at, base, dirFlags|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	where, is, err := look(fd)
	if err != nil || where != ps.home {
		unix.Close(fd)
		return nil
	}
	p.fd, p.is = fd, is
	if p.above != nil {
		p.above.users++
	}
	ps.makeRoomLocked()
	ps.kept[name] = p
	return p
}

// makeRoomLocked drops a directory that was not used of late, if there are too many.
func (ps *parents) makeRoomLocked() {
	for len(ps.kept) >= parentsMax {
		for _, p := range ps.kept { // in no particular order
			if !p.used {
				ps.dropLocked(p)
				break
			}
			p.used = false
		}
	}
}

func (ps *parents) drop(p *parent) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.dropLocked(p)
}

// dropLocked keeps the directory no longer, if it was kept.
func (ps *parents) dropLocked(p *parent) {
	if ps.kept[p.name] == p {
		delete(ps.kept, p.name)
		p.releaseLocked()
	}
}

// done ends a use.
func (p *parent) done() {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.releaseLocked()
}

// releaseLocked takes one user away; with the last one it is closed.
func (p *parent) releaseLocked() {
	for ; p != nil; p = p.above {
		if p.users--; p.users > 0 {
			return
		}
		p.in.unwatchLocked(p)
		unix.Close(p.fd)
	}
}

// close closes what is not in use, and the rest when its use is over. Nothing is kept any more.
func (ps *parents) close() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.kept {
		ps.dropLocked(p)
	}
	ps.root = -1
	if ps.news != nil {
		ps.news.close()
	}
	ps.news, ps.deaf = nil, true
}

// stands reports whether the path still leads to the directory, without a link.
func (p *parent) stands(root int) bool {
	if p.above != nil {
		if !p.above.stands(root) {
			return false
		}
		root = p.above.fd
	}
	var st unix.Stat_t
	for {
		err := unix.Fstatat(root, p.base, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err != unix.EINTR {
			return err == nil && p.is == inode{uint64(st.Dev), st.Ino}
		}
	}
}

// look says which directory an open one is, and where.
func look(fd int) (mountedOn, inode, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_MNT_ID, &st); err != nil {
		return mountedOn{}, inode{}, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return mountedOn{}, inode{}, errors.ErrUnsupported
	}
	device := unix.Mkdev(st.Dev_major, st.Dev_minor)
	return mountedOn{device, st.Mnt_id}, inode{device, st.Ino}, nil
}

// depth is how many elements a clean path has.
func depth(name string) (n int) {
	for i := range len(name) {
		if name[i] == '/' && i+1 < len(name) {
			n++
		}
	}
	return n
}
