package files

import (
	"hash/crc32"
	"io/fs"
	"sync"

	"golang.org/x/sys/unix"
)

// identity is what tells a file or directory from a later one of the same name.
type identity struct {
	inode      uint64
	birth      int64  // ns since 1970; 0: not recorded
	generation uint32 // 0: not told
	directory  bool
	leaf       bool // a directory in which surely no other one lies
}

// Birth returns when a file or directory was made, in nanoseconds since 1970; 0 if the file system does not know.
func (t *Tree) Birth(name string) (int64, error) {
	_, birth, _, err := t.Identity(name)
	return birth, err
}

// Identity returns what tells a file or directory from a later one of the same name: its inode, when it was made as
// Birth has it, and the generation of the inode, a number that is another one each time that the file system uses the
// inode number again, or 0 where it does not tell or does not do that. Births alone are as coarse as a clock tick, and ext4
// uses an inode number again at once. A link is not followed.
func (t *Tree) Identity(name string) (inode uint64, birth int64, generation uint32, err error) {
	err = t.at("stat", name, func(p place) error {
		id, e := t.sys.identity(p.dir, p.base)
		inode, birth, generation = id.inode, id.birth, id.generation
		return e
	})
	return inode, birth, generation, err
}

// Vacant reports whether nothing has the name and its parent is a directory. It is a hint: of a parent that is kept open it
// does not look whether it still has its name. Who finds that out, as MkdirIdentity does, sets Vacant right.
func (t *Tree) Vacant(name string) bool {
	vacant := false
	look := func(p place) error {
		vacant = t.sys.vacant(p.dir, p.base)
		return nil
	}
	if name, err := clean(name); err == nil && t.atKept(name, look) {
		return vacant
	}
	_ = t.at("stat", name, look)
	return vacant
}

// atKept does f where the name was when its parent was opened, if that is kept open; else it reports false.
func (t *Tree) atKept(name string, f func(p place) error) bool {
	t.life.RLock()
	defer t.life.RUnlock()
	dir, base := split(name)
	if t.rootfd < 0 || t.reg.isTemporary(base) {
		return false
	}
	kept := t.parents.take(dir)
	if kept == nil {
		return false
	}
	defer kept.done()
	_ = f(place{name: name, base: base, dir: kept.fd})
	return true
}

// MkdirIdentity is Mkdir, and Identity of what it made: 0 if that could not be told.
func (t *Tree) MkdirIdentity(name string, perm fs.FileMode) (inode uint64, birth int64, generation uint32, err error) {
	err = t.at("mkdir", name, func(p place) error {
		if err := t.mkdir(p, perm); err != nil {
			return err
		}
		if id, err := t.sys.identity(p.dir, p.base); err == nil {
			inode, birth, generation = id.inode, id.birth, id.generation
		}
		return nil
	})
	return inode, birth, generation, err
}

// RmdirIdentity is RemoveDir of a directory that Identity says that of; it reports false and does nothing if that is
// not what it says now.
func (t *Tree) RmdirIdentity(name string, inode uint64, birth int64, generation uint32) (same bool, err error) {
	err = t.at("rmdir", name, func(p place) error {
		id, err := t.sys.identity(p.dir, p.base)
		if err != nil || id.inode != inode || id.birth != birth || id.generation != generation {
			return nil
		}
		same = true
		return t.rmdir(p)
	})
	return same, err
}

// Identities says of each of the names in a directory that is a directory itself what Identity does, and whether surely
// no directory lies in it. It calls each, with the index of the name, for those that there are.
func (t *Tree) Identities(dir string, names []string, each func(i int, inode uint64, birth int64, generation uint32, leaf bool)) error {
	return t.opened("stat", dir, dirFlags, func(fd int, _ string) error {
		for i, name := range names {
			if t.reg.isTemporary(name) {
				continue
			}
			id, err := t.sys.identity(fd, name)
			if missing(err) {
				continue
			}
			if err != nil {
				return err
			}
			if id.directory {
				each(i, id.inode, id.birth, id.generation, id.leaf)
			}
		}
		return nil
	})
}

// Subdirectories returns the names of the directories in a directory, in no particular order, and how many entries of all
// kinds it has. Links are not followed. It asks the directory alone, where the file system keeps types in it.
func (t *Tree) Subdirectories(name string) (names []string, entries int, err error) {
	err = t.opened("readdir", name, syncFlags, func(fd int, _ string) error {
		return eachEntry(fd, func(base string, kind uint8) error {
			entries++
			if kind == unix.DT_UNKNOWN && !t.reg.isTemporary(base) {
				i, err := t.sys.lstatat(fd, base, base)
				if err != nil && err != unix.ENOENT {
					return err
				}
				if err == nil && i.IsDir() {
					kind = unix.DT_DIR
				}
			}
			if kind == unix.DT_DIR && !t.reg.isTemporary(base) && !Hidden(base) {
				names = append(names, base)
			}
			return nil
		})
	})
	return names, entries, err
}

// statx describes base itself, with its inode and its birth.
func (s *system) statx(dir int, base string) (st unix.Statx_t, err error) {
	if err := s.check("stat"); err != nil {
		return st, err
	}
	const mask = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BTIME
	err = retry(func() error { return unix.Statx(dir, base, unix.AT_SYMLINK_NOFOLLOW, mask, &st) })
	return st, err
}

// birth is in nanoseconds since 1970; 0: not recorded.
func birth(st *unix.Statx_t) int64 {
	if st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}

// identity returns what tells base from a later one: one look, and another one for the generation.
func (s *system) identity(dir int, base string) (id identity, err error) {
	st, err := s.statx(dir, base)
	if err != nil {
		return id, err
	}
	id = identity{inode: st.Ino, birth: birth(&st), directory: st.Mode&unix.S_IFMT == unix.S_IFDIR}
	switch s.devices.of(dir, base, &st) {
	case speciesOther:
		return id, nil
	case speciesNumbering:
		id.leaf = id.directory && st.Nlink == 2
		return id, nil
	case speciesCounting:
		id.leaf = id.directory && st.Nlink == 2
	}
	id.generation, err = generation(dir, base)
	return id, err
}

// generation returns a number that changes with the generation of the inode; 0: the system does not say.
//
// A file handle is made of the inode number and its generation, by name_to_handle_at(2) without opening anything. Its
// layout differs. A CRC is never the same for two handles of one length that differ in four bytes in a row.
func generation(dir int, base string) (uint32, error) {
	handle, _, err := unix.NameToHandleAt(dir, base, 0)
	switch {
	case missing(err):
		return 0, err
	case err != nil: // refused by a sandbox, say
		return 0, nil
	}
	return max(1, crc32.ChecksumIEEE(handle.Bytes())), nil
}

// species is what is known of a kind of file systems.
type species uint8

const (
	speciesOther     species = iota
	speciesKeeping           // an inode's generation stays what it is for as long as the file exists
	speciesCounting          // besides, the link count of a directory is 2 and one for each directory in it
	speciesNumbering         // so it is, and the number of an inode is not used again: no generation is needed
)

// devices remembers the species of each mounted file system. Others than the named are not asked for generations: FAT, for
// one, makes new ones up as often as it reads an inode.
type devices struct {
	mu      sync.RWMutex
	species map[uint64]species
}

// of returns that of the file system that st, of base in dir, is in.
func (d *devices) of(dir int, base string, st *unix.Statx_t) species {
	device := unix.Mkdev(st.Dev_major, st.Dev_minor)
	d.mu.RLock()
	k, known := d.species[device]
	d.mu.RUnlock()
	if known {
		return k
	}
	k, known = speciesOf(dir, base, st)
	if !known {
		return speciesOther
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.species == nil {
		d.species = make(map[uint64]species)
	}
	d.species[device] = k
	return k
}

func speciesOf(dir int, base string, of *unix.Statx_t) (k species, known bool) {
	fd, err := unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return speciesOther, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	var sys unix.Statfs_t
	if unix.Fstat(fd, &st) != nil || unix.Fstatfs(fd, &sys) != nil ||
		uint64(st.Dev) != unix.Mkdev(of.Dev_major, of.Dev_minor) { // something else has the name by now
		return speciesOther, false
	}
	switch int64(sys.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC: // ext2 and ext3 have the same number
		return speciesCounting, true
	case unix.TMPFS_MAGIC: // it counts inodes; should 32 bits be all that it has, nobody uses them up within a tick of the births
		return speciesNumbering, true
	case unix.BTRFS_SUPER_MAGIC:
		return speciesKeeping, true
	}
	return speciesOther, true
}
