package journal

import (
	"os"
	"runtime/debug"
)

// roomAhead is how many bytes of a journal are made ready before they are needed.
const roomAhead = 256 << 10

// roomFile is a journalFile on disk that has room ahead of what is written: space that belongs to the file already and
// reads as zeros. Where there is none (on a full disk) the file grows with each write.
//
// For a journal that is synced line by line the room is zeros that were written: a sync of what is written over them has no
// length and no extents to make last, and leaves the file system's own journal alone.
//
// With stores, for one that is not, the room is allocated, and what has room is stored into a shared map of the file and
// costs no system call. Such a line is the kernel's as one that was written is: a killed process takes nothing of it along. (A
// sync of pages that are stored to costs more than one of pages that are written.) Where files cannot be allocated lines are
// written, as they are from the first store on that the system refuses.
//
// It is for one goroutine at a time, but for Sync.
type roomFile struct {
	*os.File
	ahead  int64
	stores bool

	size   int64  // up to here the file has room
	window []byte // a map of the file up to there; nil: none
	from   int64  // where in the file it begins
}

func newRoomFile(f *os.File, size, ahead int64, stores bool) *roomFile {
	return &roomFile{File: f, ahead: ahead, stores: stores, size: size}
}

// WriteAt writes all of b, which begins no later than where the last write ended.
func (f *roomFile) WriteAt(b []byte, offset int64) (int, error) {
	end := offset + int64(len(b))
	if end > f.size {
		f.extend(offset, end)
	}
	if f.window != nil && offset >= f.from && end <= f.from+int64(len(f.window)) {
		if f.store(b, offset) {
			return len(b), nil
		}
		f.stores = false // the disk fails, or somebody has cut the file off: let a write say what is wrong
		f.unmap()
	}
	n, err := f.File.WriteAt(b, offset)
	f.size = max(f.size, offset+int64(n))
	return n, err
}

// extend makes room for what is to be written from offset to end, and more, as far as the system has it.
func (f *roomFile) extend(offset, end int64) {
	size := max(end, f.size+f.ahead)
	if !f.stores {
		f.fill(size)
		return
	}
	if allocate(f.File, f.size, size) != nil {
		return
	}
	f.size = size
	f.unmap()
	f.from = offset - offset%int64(os.Getpagesize())
	f.window, _ = share(f.File, f.from, f.size)
}

// fill makes room of zeros.
func (f *roomFile) fill(size int64) {
	zeros := make([]byte, min(32<<10, size-f.size))
	for f.size < size {
		n, err := f.File.WriteAt(zeros[:min(int64(len(zeros)), size-f.size)], f.size)
		f.size += int64(n)
		if err != nil {
			return
		}
	}
}

// store copies b into the map. It reports false if a part of the file cannot be had, of which b may be there in part.
func (f *roomFile) store(b []byte, offset int64) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		fault := recover()
		if _, atAddress := fault.(interface{ Addr() uintptr }); fault != nil && !atAddress {
			panic(fault)
		}
		ok = fault == nil
	}()
	copy(f.window[offset-f.from:], b)
	return true
}

func (f *roomFile) unmap() {
	if f.window != nil {
		unshare(f.window)
		f.window = nil
	}
}

// Truncate cuts the file, and the room, off behind size.
func (f *roomFile) Truncate(size int64) error {
	f.unmap()
	err := f.File.Truncate(size)
	if err == nil {
		f.size = size
	}
	return err
}

func (f *roomFile) Sync() error { return datasync(f.File) }

func (f *roomFile) Close() error {
	f.unmap()
	return f.File.Close()
}
