package journal

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"path"
	"syscall"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// errExists is matched by the error of tree.make if something has the name.
var errExists = errors.New("something has that name")

// tree makes, removes and recognises the directories of locks.
type tree struct {
	fs Directories
	// turns are for changes of what lies in one directory, by its name. The system has these one after the other; threads
	// that wait there cost more than goroutines that wait here, as soon as there are many.
	turns [64]chan struct{}
	seed  maphash.Seed
}

// atOnce is how many may change one directory: while one waits for its goroutine to go on, another can begin.
const atOnce = 2

func newTree(fs Directories) *tree {
	t := &tree{fs: fs, seed: maphash.MakeSeed()}
	for i := range t.turns {
		t.turns[i] = make(chan struct{}, atOnce)
	}
	return t
}

// turn waits until few others change what lies in the name's parent, and returns what is to be received from after.
func (t *tree) turn(name lock.Name) chan struct{} {
	dir, _ := path.Split(string(name))
	turn := t.turns[maphash.String(t.seed, dir)%uint64(len(t.turns))]
	turn <- struct{}{}
	return turn
}

// sight is what stands at a name.
type sight struct {
	found     bool // something does
	directory bool // a directory, not a link to one
	id        lock.DirectoryID
	modified  time.Time
}

// is reports whether this is that directory. An id that nobody noted fits every directory; a birth or a
// generation that the file system does not record fits every other.
func (s sight) is(id lock.DirectoryID) bool {
	if !s.directory {
		return false
	}
	if id.Inode != 0 && id.Inode != s.id.Inode {
		return false
	}
	return fits(id.Birth, s.id.Birth) && fits(id.Generation, s.id.Generation)
}

// fits reports whether two values are the same, or one of them is unknown.
func fits[T int64 | uint32](a, b T) bool { return a == 0 || b == 0 || a == b }

// look returns what stands at the name. A name that nothing has is no error, nor is one without a parent.
func (t *tree) look(name lock.Name) (sight, error) {
	info, err := t.fs.Lstat(string(name))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return sight{}, nil
	case err != nil:
		return sight{}, pathError("look at", name, err)
	case !info.IsDir():
		return sight{found: true}, nil
	}
	id, err := t.identity(name, info)
	if err != nil { // it has gone since
		return sight{}, nil
	}
	return sight{found: true, directory: true, id: id, modified: info.ModTime()}, nil
}

// occupied reports whether something lies in the directory. One that has gone meanwhile is not occupied; what cannot be read
// is.
func (t *tree) occupied(name lock.Name) bool {
	infos, err := t.fs.ReadDir(string(name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false
	}
	return err != nil || len(infos) > 0
}

func (t *tree) identity(name lock.Name, info fs.FileInfo) (lock.DirectoryID, error) {
	identities, ok := t.fs.(Identities)
	if !ok {
		return lock.DirectoryID{Inode: inode(info)}, nil
	}
	return identify(identities, name)
}

// make makes the directory of a lock. The error matches errExists if something has the name,
// lock.ErrNoParent if there is nowhere to make it.
func (t *tree) make(name lock.Name) (lock.DirectoryID, error) {
	turn := t.turn(name)
	id, told, err := t.mkdir(name)
	<-turn
	switch {
	case errors.Is(err, fs.ErrExist):
		return lock.DirectoryID{}, fmt.Errorf("%s: %w", name, errExists)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return lock.DirectoryID{}, noParent(name)
	case err != nil:
		return lock.DirectoryID{}, pathError("mkdir", name, err)
	}
	if told {
		return id, nil
	}
	if identities, ok := t.fs.(Identities); ok {
		id, _ := identify(identities, name) // 0, unknown, if the host was faster
		return id, nil
	}
	seen, _ := t.look(name)
	return seen.id, nil
}

// mkdir makes the directory, and says which one that is if that is one step.
func (t *tree) mkdir(name lock.Name) (id lock.DirectoryID, told bool, err error) {
	steps, ok := t.fs.(Steps)
	if !ok {
		return id, false, t.fs.Mkdir(string(name), 0o755)
	}
	id.Inode, id.Birth, id.Generation, err = steps.MkdirIdentity(string(name), 0o755)
	return id, true, err
}

// removeSame removes the directory if it is that one, in one look if possible. It may say no where look would say that it is,
// but not the other way round. Its error is that of remove.
func (t *tree) removeSame(name lock.Name, id lock.DirectoryID) (same bool, err error) {
	steps, ok := t.fs.(Steps)
	if !ok || id.Inode == 0 {
		if !t.still(name, id) {
			return false, nil
		}
		return true, t.remove(name)
	}
	turn := t.turn(name)
	same, err = steps.RmdirIdentity(string(name), id.Inode, id.Birth, id.Generation)
	<-turn
	return same, removed(name, err)
}

// still reports whether the name has that directory, in one look if possible.
func (t *tree) still(name lock.Name, id lock.DirectoryID) bool {
	identities, ok := t.fs.(Identities)
	if !ok || id.Inode == 0 {
		return false
	}
	now, err := identify(identities, name)
	return err == nil && now == id
}

func identify(identities Identities, name lock.Name) (lock.DirectoryID, error) {
	number, birth, generation, err := identities.Identity(string(name))
	return lock.DirectoryID{Inode: number, Birth: birth, Generation: generation}, err
}

// subdirectories returns the names of the directories in a directory, and how many entries it has.
func (t *tree) subdirectories(dir lock.Name) (bases []string, entries int, err error) {
	if lists, ok := t.fs.(Lists); ok {
		return lists.Subdirectories(string(dir))
	}
	infos, err := t.fs.ReadDir(string(dir))
	for _, info := range infos {
		if info.IsDir() {
			bases = append(bases, info.Name())
		}
	}
	return bases, len(infos), err
}

// vacant reports whether a directory can be made there, as far as one look tells; if not, look and parent say why.
func (t *tree) vacant(name lock.Name) bool {
	steps, ok := t.fs.(Steps)
	return ok && steps.Vacant(string(name))
}

// parent returns lock.ErrNoParent if there is no directory to make the name in.
func (t *tree) parent(name lock.Name) error {
	dir := name.Parent()
	if dir == "/" {
		return nil
	}
	info, err := t.fs.Lstat(string(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), err == nil && !info.IsDir():
		return noParent(name)
	case err != nil:
		return pathError("look at", dir, err)
	}
	return nil
}

// remove removes the empty directory of a lock; one that has gone already is as good.
func (t *tree) remove(name lock.Name) error {
	turn := t.turn(name)
	err := t.fs.RemoveDir(string(name))
	<-turn
	return removed(name, err)
}

// removed is what an rmdir of a lock's directory comes to.
func removed(name lock.Name, err error) error {
	switch {
	case err == nil, errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return nil
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.EEXIST): // POSIX allows both
		return fmt.Errorf("%s: %w", name, lock.ErrNotEmpty)
	}
	return pathError("rmdir", name, err)
}

func noParent(name lock.Name) error { return fmt.Errorf("%s: %w", name, lock.ErrNoParent) }

// pathError is an error with the FTP path in the place of any real one.
func pathError(op string, name lock.Name, err error) error {
	return &fs.PathError{Op: op, Path: string(name), Err: bare(err)}
}
