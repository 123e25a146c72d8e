package journal

import (
	"errors"
	"io/fs"
	"os"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// file is the part of an open file that the log uses. Tests replace it to make it fail.
type file interface {
	WriteAt(b []byte, offset int64) (int, error)
	Truncate(size int64) error
	Sync() error // the data, and the metadata that a reader of it needs
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
	opened fs.FileInfo
	base   lock.Position // the position of its first byte
	size   int64         // with the zeros, which are synced
	header header
}

// openSpare opens the file that becomes the next segment. A start finds the spare file of the previous start, so it needs no space on a
// full disk.
func (l *Log) openSpare() (*segment, error) {
	f, err := os.OpenFile(l.dir.spare(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	s := &segment{file: l.o.wrap(diskFile{f}), path: l.dir.spare()}
	if s.opened, err = f.Stat(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// assignNumber gives the spare file the number of a segment. A start ignores a segment without a header.
func (l *Log) assignNumber(s *segment, number uint64) error {
	path := l.dir.segment(number)
	if err := os.Rename(s.path, path); err != nil {
		return err
	}
	s.number, s.path = number, path
	if err := syncDir(l.dir.segments()); err != nil {
		return l.failure.set(err)
	}
	return nil
}

// checkExists returns ErrGone if the path no longer leads to the segment: no start would read it.
func (s *segment) checkExists() error {
	there, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(s.opened, there) {
		return ErrGone
	}
	return nil
}

const (
	piece = 4 << 10 // zeros are written in pieces of a page: after one large write each sync takes longer, on ext4 for good
	batch = 64      // the number of pieces between two syncs, so that syncs of lines in between stay short
)

var zeros [piece]byte

// fill writes zeros to a segment without lines, up to a size at least, and cuts off all bytes behind them.
func (l *Log) fill(s *segment, to int64) error {
	if s.size >= to {
		return nil
	}
	if err := s.Truncate(to); err != nil {
		return err
	}
	for s.size < to {
		select {
		case <-l.stop:
			return lock.ErrClosed
		default:
		}
		size, err := s.size, error(nil)
		for n := 0; n < batch && size < to && err == nil; n++ {
			var written int
			written, err = s.WriteAt(zeros[:], size)
			size += int64(written)
		}
		if err != nil && !isFull(err) {
			return l.failure.set(err)
		}
		if err := l.datasync(s); err != nil {
			return err
		}
		if s.size = size; err != nil {
			return err
		}
	}
	return nil
}
