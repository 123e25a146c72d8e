package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// record is what is written down about an upload before its temporary exists: one small
// file in the state directory, named by the id and locked (flock) for as long as a process works on the
// upload. So a record that can be locked belongs to a dead one, also if the process was killed, and also if
// several processes share the directory.
type record struct {
	id    string
	file  *os.File // open and locked while the upload lives
	dir   string   // FTP path of the directory that the temporary is in
	dev   uint64   // that directory itself, wherever it is moved to
	inode uint64
	base  string // the last element of the target's name
}

// temporary is the name of the temporary beside the target.
func (r *record) temporary() string { return prefix + r.id }

// line is the record as it stands in its file. Names are bytes: they are quoted.
func (r *record) line() []byte {
	return fmt.Appendf(nil, "1 %q %d %d %q\n", r.dir, r.dev, r.inode, r.base)
}

// parseRecord reads the first line. A record without a whole one was never finished, and nothing was made after it.
// What follows on the line, and the lines after it, are of earlier versions, which could keep an upload for its owner.
func parseRecord(id string, content []byte) (*record, bool) {
	line, _, whole := strings.Cut(string(content), "\n")
	r := &record{id: id}
	rest, ok := strings.CutPrefix(line, "1 ")
	ok = ok && quoted(&rest, &r.dir) && number(&rest, &r.dev) && number(&rest, &r.inode) && quoted(&rest, &r.base)
	return r, ok && whole
}

// quoted takes a quoted string and a blank off the line.
func quoted(line *string, value *string) bool {
	q, err := strconv.QuotedPrefix(*line)
	if err != nil {
		return false
	}
	*value, err = strconv.Unquote(q)
	*line = strings.TrimPrefix((*line)[len(q):], " ")
	return err == nil
}

// number takes a number and a blank off the line.
func number(line *string, value *uint64) bool {
	s, rest, _ := strings.Cut(*line, " ")
	n, err := strconv.ParseUint(s, 10, 64)
	*value, *line = n, rest
	return err == nil
}

// newRecord writes down that an upload begins. A Sweep that comes between the making of the file and its
// lock takes it for a dead one and removes it; then another is made.
func (t *Tree) newRecord(p place) (r *record, err error) {
	is, err := t.identify(p)
	if err != nil {
		return nil, err
	}
	of := record{dev: is.device, inode: is.number, base: p.base}
	of.dir, _ = split(p.name)
	for range 3 {
		if r, err = t.tryRecord(of); err != errSwept {
			break
		}
	}
	return r, err
}

// identify says which directory it is.
func (t *Tree) identify(p place) (inode, error) {
	if p.kept != nil {
		return p.kept.is, nil
	}
	at, err := t.sys.fstat(p.dir, "")
	if err != nil {
		return inode{}, err
	}
	return inode{uint64(at.st.Dev), at.st.Ino}, nil
}

// tryRecord makes a record.
func (t *Tree) tryRecord(of record) (*record, error) {
	if err := t.sys.check("record"); err != nil {
		return nil, err
	}
	r := &of
	r.id = newID()
	var err error
	if r.file, err = t.state.OpenFile(r.id, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, bare(err)
	}
	t.reg.add(r.temporary())
	if err := t.writeRecord(r); err != nil {
		t.dropRecord(r)
		return nil, err
	}
	return r, nil
}

// errSwept says that a Sweep was quicker.
var errSwept = errors.New("the record of the upload was removed")

// writeRecord locks a new record and fills it.
func (t *Tree) writeRecord(r *record) error {
	err := flock(r.file)
	if err == unix.EWOULDBLOCK {
		return errSwept
	}
	if err != nil {
		return err
	}
	i, err := t.sys.fstat(int(r.file.Fd()), "")
	if err != nil {
		return err
	}
	if i.st.Nlink == 0 {
		return errSwept
	}
	if err := t.sys.check("record"); err != nil {
		return err
	}
	_, err = r.file.Write(r.line())
	return bare(err)
}

// dropRecord removes a record whose temporary is gone, or has its final name.
func (t *Tree) dropRecord(r *record) error {
	err := t.sys.check("unrecord")
	if err == nil {
		if err = bare(t.state.Remove(r.id)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	r.file.Close() // and so unlocked
	t.reg.remove(r.temporary())
	return err
}

// flock locks a record, or says EWOULDBLOCK: somebody works on the upload.
func flock(f *os.File) error {
	return retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
}

// claimRecord opens and locks the record of a dead upload. With ok false somebody works on it, or it is gone.
// What cannot be understood is returned with a nil record.
func (t *Tree) claimRecord(id string) (f *os.File, r *record, ok bool, err error) {
	f, err = t.state.OpenFile(id, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		if os.IsNotExist(err) {
			err = nil
		}
		return nil, nil, false, bare(err)
	}
	err = flock(f)
	if err == nil {
		var content []byte
		if content, err = io.ReadAll(f); err == nil {
			if r, ok := parseRecord(id, content); ok {
				r.file = f
				return f, r, true, nil
			}
			return f, nil, true, nil
		}
	}
	f.Close()
	if err == unix.EWOULDBLOCK {
		err = nil
	}
	return nil, nil, false, bare(err)
}

// recordIDs lists the records that there are.
func (t *Tree) recordIDs() ([]string, error) {
	d, err := t.state.Open(".")
	if err != nil {
		return nil, bare(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	ids := names[:0]
	for _, n := range names {
		if isID(n) {
			ids = append(ids, n)
		}
	}
	return ids, bare(err)
}

// loadRecords learns which temporaries there are from before, so that they are hidden.
func (t *Tree) loadRecords() error {
	ids, err := t.recordIDs()
	if err != nil {
		return err
	}
	for _, id := range ids {
		t.reg.add(prefix + id)
	}
	return nil
}
