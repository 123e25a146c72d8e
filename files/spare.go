package files

import (
	"errors"
	"io/fs"
	"sync"
)

// maxSpare is how many records wait for the next uploads, at most. Each is a small file that is open.
const maxSpare = 32

// spareMark is what the line of a record that waits begins with, so that it is none.
const spareMark = '-'

// spares are records that no upload has at the moment, open and locked. To make and to remove a file costs a small
// upload more than anything else that is done for it: some file systems look through all that were removed in the last
// minutes before they make another. So a record goes from one upload to the next.
//
// Its name goes with it, and stays hidden and refused meanwhile.
type spares struct {
	mu     sync.Mutex
	list   []*record
	closed bool
}

func (s *spares) take() *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return nil
	}
	r := s.list[len(s.list)-1]
	s.list = s.list[:len(s.list)-1]
	return r
}

// put reports whether there is room for it.
func (s *spares) put(r *record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.list) >= maxSpare {
		return false
	}
	s.list = append(s.list, r)
	return true
}

// closeSpares removes those that there are, and lets no more come.
func (t *Tree) closeSpares() error {
	t.spares.mu.Lock()
	list := t.spares.list
	t.spares.list, t.spares.closed = nil, true
	t.spares.mu.Unlock()
	var errs []error
	for _, r := range list {
		if err := t.dropRecord(r); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// reuse writes an upload into a record that waited. With ok false somebody removed its file, and another is needed.
func (t *Tree) reuse(r *record, of *record) (ok bool, err error) {
	i, err := t.sys.fstat(int(r.file.Fd()), "")
	if err == nil && i.st.Nlink == 0 {
		t.dropRecord(r) // closes it: there is nothing to remove
		return false, nil
	}
	r.dir, r.dev, r.inode, r.base, r.owner = of.dir, of.dev, of.inode, of.base, ""
	if err == nil {
		err = t.writeOver(r)
	}
	if err != nil {
		t.dropRecord(r)
		return false, err
	}
	return true, nil
}

// writeOver makes the line of the upload all that is in the record. Until it is written there is no whole line.
func (t *Tree) writeOver(r *record) error {
	if err := t.sys.check("record"); err != nil {
		return err
	}
	line := r.line()
	if int64(len(line)) < r.size {
		if err := r.file.Truncate(int64(len(line)) - 1); err != nil {
			return bare(err)
		}
	}
	if _, err := r.file.WriteAt(line, 0); err != nil {
		return bare(err)
	}
	r.size = int64(len(line))
	return nil
}

// endRecord forgets an upload whose temporary is gone, or has its final name. The record is kept for another, but one
// with several lines (of an upload that was kept and gone on with) is not: one mark would not do.
func (t *Tree) endRecord(r *record) error {
	if !r.single {
		return t.dropRecord(r)
	}
	err := t.sys.check("unrecord")
	if err == nil {
		_, err = r.file.WriteAt([]byte{spareMark}, 0)
	}
	if err != nil || !t.spares.put(r) {
		return t.dropRecord(r)
	}
	return nil
}
