package files

import (
	"io"
	"io/fs"
	"sync"
	"syscall"
)

// DownloadOptions say how a download begins.
type DownloadOptions struct {
	// Offset is how many bytes on disk to leave out (REST), in ASCII too; beyond the end is ErrOffset.
	Offset int64
	// ASCII makes CRLF of LF; a CRLF that is in the file stays one.
	ASCII bool
	Pace  Pace
}

// Download is a file on its way out. It keeps the file that it opened, whatever is published
// under the name meanwhile. It is for one goroutine, but Close may come from another.
type Download struct {
	file   *regular
	name   string
	pace   Pace
	beats  *beats
	ascii  *toCRLF // nil: binary
	offset int64   // of what is read next
	out    []byte  // converted for Read, not yet read
}

var (
	_ io.ReadCloser = (*Download)(nil)
	_ io.WriterTo   = (*Download)(nil)
)

// Download opens a file to be sent. It must be a regular one: EISDIR, ErrNotRegular. A link is followed
// within the tree.
func (t *Tree) Download(name string, o DownloadOptions) (*Download, error) {
	name, err := clean(name)
	if err != nil {
		return nil, fail("download", name, err)
	}
	t.life.RLock()
	defer t.life.RUnlock()
	file, err := t.openRegular(name)
	if err != nil {
		return nil, fail("download", name, err)
	}
	return t.download(file, name, o)
}

// download sends what is open.
func (t *Tree) download(file *regular, name string, o DownloadOptions) (*Download, error) {
	d := &Download{file: file, name: name, pace: o.Pace, beats: &t.beats, offset: o.Offset}
	if err := d.start(o); err != nil {
		file.Close()
		return nil, fail("download", name, err)
	}
	return d, nil
}

func (d *Download) start(o DownloadOptions) error {
	if o.Offset < 0 || o.Offset > d.file.size {
		return ErrOffset
	}
	if !o.ASCII {
		return nil
	}
	d.ascii = &toCRLF{}
	if o.Offset == 0 {
		return nil
	}
	// A CR just before makes an LF here the rest of a CRLF.
	var last [1]byte
	if _, err := d.file.ReadAt(last[:], o.Offset-1); err != nil && err != io.EOF {
		return err
	}
	d.ascii.cr = last[0] == '\r'
	return nil
}

// Stat describes the file that is open, which may have another name by now, or none.
func (d *Download) Stat() (fs.FileInfo, error) {
	i := &info{}
	_, i.name = split(d.name)
	if err := d.file.use(func(fd int) error { return syscall.Fstat(fd, &i.st) }); err != nil {
		return nil, fail("stat", d.name, err)
	}
	return i, nil
}

// Left returns how many bytes WriteTo has to send, by the size that the file had when it was opened, and whether a WriteTo that
// fails can be followed by another one that goes on where it stopped: that is so in binary.
func (d *Download) Left() (n int64, ok bool) { return max(d.file.size-d.offset, 0), d.ascii == nil }

// Close closes the file. A transfer under way fails.
func (d *Download) Close() error { return fail("close", d.name, d.file.Close()) }

// Read reads bytes as they go to the wire, without any pace.
func (d *Download) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(d.out) == 0 && d.ascii == nil {
		n, err := d.next(p)
		return n, d.readError(err)
	}
	if len(d.out) == 0 {
		buf := make([]byte, min(len(p), smallPiece))
		n, err := d.next(buf)
		d.out = d.ascii.convert(make([]byte, 0, 2*n), buf[:n])
		if n == 0 {
			return 0, d.readError(err)
		}
	}
	n := copy(p, d.out)
	d.out = d.out[n:]
	return n, nil
}

func (d *Download) readError(err error) error {
	if err == io.EOF {
		return err
	}
	return fail("download", d.name, err)
}

// next reads bytes as they are on disk. It never returns both bytes and an error.
func (d *Download) next(p []byte) (int, error) {
	n, err := d.file.ReadAt(p, d.offset)
	d.offset += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// WriteTo writes everything that is left, paced if w is a connection, and returns how many bytes went to the wire. In
// binary to a plain connection they go there within the kernel (sendfile). Fewer bytes than the file had when it was opened are ErrShrunk.
func (d *Download) WriteTo(w io.Writer) (int64, error) {
	watch := d.beats.watchWrite(w, d.pace)
	defer watch.stop()
	err := d.writeTo(w, watch)
	if err == nil && d.offset < d.file.size {
		err = ErrShrunk
	}
	return watch.moved.Load(), fail("download", d.name, err)
}

func (d *Download) writeTo(w io.Writer, watch *watch) error {
	if d.ascii == nil {
		if rc := plainConn(w); rc != nil {
			end, ok, err := sendfile(rc, d.file, d.offset, &watch.moved)
			d.offset = end
			if ok {
				return err
			}
		}
	}
	return d.copyOut(w, watch)
}

// smallPiece is what one write takes if nothing tells how far it came before it is done.
const smallPiece = 16 << 10

func (d *Download) copyOut(w io.Writer, watch *watch) error {
	buf := getBuffer()
	defer putBuffer(buf)
	piece := *buf
	var converted []byte
	if d.ascii != nil {
		to := getBuffer()
		defer putBuffer(to)
		converted = *to
		piece = piece[:len(converted)/2]
	}
	if _, ok := watch.queue(); !ok && watch.beat != nil {
		piece = piece[:smallPiece]
	}
	for {
		out := d.out // what a Read left
		d.out = nil
		if len(out) == 0 {
			n, err := d.next(piece)
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			out = piece[:n]
			if d.ascii != nil {
				out = d.ascii.convert(converted[:0], out)
			}
		}
		n, err := w.Write(out)
		watch.moved.Add(int64(n))
		if err != nil {
			return err
		}
	}
}

// buffers are lent to transfers that cannot be left to the kernel. At half the size ASCII is a tenth slower.
var buffers = sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }}

func getBuffer() *[]byte  { return buffers.Get().(*[]byte) }
func putBuffer(b *[]byte) { buffers.Put(b) }
