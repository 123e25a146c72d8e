package journal

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// file is what the log needs of an open file; tests make it fail.
type file interface {
	WriteAt(b []byte, offset int64) (int, error)
	Truncate(size int64) error
	Sync() error // the data, and of the metadata what is needed to read it
	Close() error
}

// diskFile is a file on disk.
type diskFile struct{ *os.File }

func (f diskFile) Sync() error { return datasync(f.File) }

// segment is one file of the log. Its lines are followed by zeros, which were written before: a sync of lines over them needs no
// metadata, and a write over them needs no space.
type segment struct {
	file
	number uint64
	path   string
	self   fs.FileInfo
	base   lock.Position // the position of its first byte
	header header
	zeroed int64        // zeros are written up to here. Log.writing guards it
	filled atomic.Int64 // and synced up to here
}

// openSegment opens or makes the file of a segment, which has no lines yet. A file that is not all zeros is emptied.
func (l *Log) openSegment(path string, number uint64) (*segment, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	s := &segment{file: l.o.wrap(diskFile{f}), number: number, path: path}
	if s.self, err = f.Stat(); err == nil {
		s.zeroed, err = zeros(f)
	}
	if err == nil && s.zeroed < s.self.Size() {
		s.zeroed, err = 0, s.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// zeros returns how many zeros a file begins with.
func zeros(f *os.File) (n int64, err error) {
	buffer := make([]byte, 64<<10)
	for {
		got, err := f.ReadAt(buffer, n)
		for _, b := range buffer[:got] {
			if b != 0 {
				return n, nil
			}
			n++
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// gone returns ErrGone if the path does not lead to the segment any more: no start would read it.
func (s *segment) gone() error {
	there, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(s.self, there) {
		return ErrGone
	}
	return nil
}

const (
	piece = 4 << 10 // zeros are written in pieces of a page: after one large write each sync takes longer, on ext4 for good
	batch = 64      // so many of them are synced at a time, so that syncs of lines in between stay short
)

var nothing [piece]byte

// fill makes the segment have zeros up to a size at least. Its lines end before that: the log writes lines with writing locked too.
func (l *Log) fill(s *segment, to int64) error {
	for s.filled.Load() < to {
		select {
		case <-l.stop:
			return lock.ErrClosed
		default:
		}
		zeroed, err := l.fillBatch(s, to)
		if err != nil && !full(err) {
			return l.failure.set(err)
		}
		if err := l.datasync(s); err != nil {
			return err
		}
		if s.filled.Store(zeroed); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) fillBatch(s *segment, to int64) (zeroed int64, err error) {
	for range batch {
		l.writing.Lock()
		if zeroed = s.zeroed; zeroed < to {
			var n int
			n, err = s.WriteAt(nothing[:piece-zeroed%piece], zeroed)
			zeroed += int64(n)
			s.zeroed = zeroed
		}
		l.writing.Unlock()
		if err != nil || zeroed >= to {
			break
		}
	}
	return zeroed, err
}
