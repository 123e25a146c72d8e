package powerloss

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Recording has the changes of one process below one directory.
type Recording struct {
	root, attic string
	rootInode   uint64 // the root's inode
	initial     disk   // the content before them
	events      []event
	firstEvent  int             // the number of events before the process, see Image.Record
	dirs        map[uint64]bool // all directories at any time, also of other recordings of the root
}

// Sync is one call of fsync or fdatasync.
type Sync struct {
	Path      string // of the synced file, relative to the root, at that time
	Directory bool
	After     string // the last note of the process
	Number    int    // of syncs before it
}

// event is one change. Exactly one field is set.
type event struct {
	entries []entry // one step
	data    *data
	sync    *synced
	note    string
}

// entry is a name in a directory with its new inode; 0: removed.
type entry struct {
	dir  uint64
	name string
	to   uint64
}

// data is the new content of a file.
type data struct {
	file    uint64
	content []byte
}

type synced struct {
	Sync
	inode uint64
}

// disk is the tree below the root: entries of directories and content of files, by inode.
type disk struct {
	dirs  map[uint64]map[string]uint64
	files map[uint64][]byte
	paths map[uint64]string // a name of each file; only after a scan
}

// sayFD receives the notes of the process.
const sayFD = 3

// Note adds a line to the recording of the calling process, in order with its changes of the disk.
func Note(line string) error {
	_, err := unix.Write(sayFD, []byte(line+"\n"))
	return err
}

// Rmdir removes an empty directory below the root. The recorded process and users of an image must call it: it moves the directory out of the tree and keeps
// it.
func Rmdir(root, path string) error {
	entries, err := os.ReadDir(path)
	switch {
	case err == nil && len(entries) > 0:
		err = unix.ENOTEMPTY
	case err == nil:
		var inode uint64
		if inode, err = inodeOf(path); err == nil {
			err = os.Rename(path, shelf(atticOf(root), 'd', inode))
		}
	}
	if err != nil {
		var p *os.PathError
		if errors.As(err, &p) {
			err = p.Err
		}
		return &os.PathError{Op: "rmdir", Path: path, Err: err}
	}
	return nil
}

// Dir makes a directory for a recording, in memory if possible, where a sync costs nothing. The end of the test removes it.
func Dir(t testing.TB) string {
	t.Helper()
	above, err := os.MkdirTemp("/dev/shm", "powerloss-")
	if err != nil {
		above = t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(above); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(above, "disk") // its attic lies beside it
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Record runs a command, which must succeed within a minute, and records its changes below the root. It uses the command's
// SysProcAttr and ExtraFiles; its outputs, if set, must be files. An error that matches [errors.ErrUnsupported] means
// that this system does not allow the tracing of processes.
func Record(cmd *exec.Cmd, root string) (*Recording, error) {
	top, err := inodeOf(root)
	if err != nil {
		return nil, err
	}
	r := &recorder{Recording: Recording{root: root, attic: atticOf(root), rootInode: top, dirs: make(map[uint64]bool)}}
	if err := os.Mkdir(r.attic, 0o700); err != nil {
		return nil, err
	}
	if r.now, err = r.scan(); err != nil {
		return nil, err
	}
	r.initial = r.now.clone()
	for file, path := range r.now.paths {
		if err := r.keepFile(file, path); err != nil {
			return nil, err
		}
	}
	return r.run(cmd)
}

// run runs the command and records its changes.
func (r *recorder) run(cmd *exec.Cmd) (*Recording, error) {
	for dir := range r.now.dirs {
		r.dirs[dir] = true
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	r.pipe = reader
	cmd.ExtraFiles = []*os.File{writer}
	info, err := writer.Stat()
	if err == nil {
		r.pipeInode = info.Sys().(*syscall.Stat_t).Ino
		err = trace(cmd, r.recordCall)
	}
	writer.Close()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EIO) {
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	if err != nil {
		return nil, err
	}
	return &r.Recording, nil
}

// recorder makes a Recording.
type recorder struct {
	Recording
	now       disk
	pipe      *os.File
	pipeInode uint64
	lastNote  string // the last note of the process
}

// recordCall records the changes of a system call. It skips calls that are frequent and change no file.
func (r *recorder) recordCall(c call) error {
	switch c.number {
	case unix.SYS_FUTEX, unix.SYS_READ, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_FCNTL, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_CLONE, unix.SYS_CLONE3, unix.SYS_GETTID,
		unix.SYS_GETPID, unix.SYS_TGKILL, unix.SYS_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL, unix.SYS_BRK:
		return nil
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		return r.recordSync(c)
	case unix.SYS_WRITE:
		if inode, _ := descriptor(c.pid, c.args[0]); inode == r.pipeInode {
			return r.recordNote(c.result)
		}
	}
	return r.recordChanges()
}

func (r *recorder) recordSync(c call) error {
	inode, path := descriptor(c.pid, c.args[0])
	if path != r.root && !strings.HasPrefix(path, r.root+"/") {
		return nil
	}
	if err := r.checkUnchanged(); err != nil {
		return err
	}
	_, isDir := r.now.dirs[inode]
	rel, _ := filepath.Rel(r.root, path)
	r.events = append(r.events, event{sync: &synced{Sync{rel, isDir, r.lastNote, len(r.Syncs())}, inode}})
	return nil
}

func (r *recorder) recordNote(n int64) error {
	if err := r.checkUnchanged(); err != nil {
		return err
	}
	text := make([]byte, n)
	if _, err := r.pipe.Read(text); err != nil {
		return err
	}
	r.lastNote = strings.TrimSuffix(string(text), "\n")
	r.events = append(r.events, event{note: r.lastNote})
	return nil
}

// checkUnchanged returns an error if something has changed without a call, for example by a store into a mapped file.
func (r *recorder) checkUnchanged() error {
	before := len(r.events)
	if err := r.recordChanges(); err != nil {
		return err
	}
	if len(r.events) > before {
		return fmt.Errorf("something changed the disk without a call: %+v", r.events[before])
	}
	return nil
}

// recordChanges records the differences between the disk now and at the last call.
func (r *recorder) recordChanges() error {
	found, err := r.scan()
	if err != nil {
		return err
	}
	var step []entry
	for _, dir := range slices.Sorted(maps.Keys(found.dirs)) {
		step = append(step, differences(dir, r.now.dirs[dir], found.dirs[dir])...)
		r.now.dirs[dir] = found.dirs[dir]
		r.dirs[dir] = true
	}
	if len(step) > 0 {
		r.events = append(r.events, event{entries: step})
	}
	for _, file := range slices.Sorted(maps.Keys(found.files)) {
		before, known := r.now.files[file]
		if !known {
			if err := r.keepFile(file, found.paths[file]); err != nil {
				return err
			}
		}
		if after := found.files[file]; !bytes.Equal(before, after) {
			r.events = append(r.events, event{data: &data{file, after}})
		}
		r.now.files[file] = found.files[file]
	}
	return nil
}

func differences(dir uint64, before, after map[string]uint64) (step []entry) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			step = append(step, entry{dir, name, after[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[name]; !stays {
			step = append(step, entry{dir, name, 0})
		}
	}
	return step
}

// keepFile gives a file a name in the attic, so that images can restore it after the process has removed it.
func (r *recorder) keepFile(file uint64, path string) error {
	return os.Link(path, shelf(r.attic, 'f', file))
}

// scan reads all files and directories below the root.
func (r *recorder) scan() (disk, error) {
	d := disk{
		dirs: map[uint64]map[string]uint64{r.rootInode: {}}, files: make(map[uint64][]byte), paths: make(map[uint64]string),
	}
	dirs := map[string]uint64{r.root: r.rootInode}
	err := filepath.WalkDir(r.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == r.root {
			return err
		}
		inode, err := inodeOf(path)
		if err != nil {
			return err
		}
		d.dirs[dirs[filepath.Dir(path)]][e.Name()] = inode
		switch {
		case e.IsDir():
			dirs[path], d.dirs[inode] = inode, make(map[string]uint64)
		case e.Type().IsRegular():
			d.paths[inode] = path
			d.files[inode], err = os.ReadFile(path)
		default:
			err = fmt.Errorf("%s is neither a file nor a directory", path)
		}
		return err
	})
	return d, err
}

func (d disk) clone() disk {
	c := disk{dirs: make(map[uint64]map[string]uint64), files: maps.Clone(d.files)}
	for dir, entries := range d.dirs {
		c.dirs[dir] = maps.Clone(entries)
	}
	return c
}

func atticOf(root string) string { return root + ".attic" }

// shelf is the place in the attic of a directory (d) or file (f).
func shelf(attic string, kind byte, inode uint64) string {
	return filepath.Join(attic, fmt.Sprintf("%c%d", kind, inode))
}

func inodeOf(path string) (uint64, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Ino, nil
}
