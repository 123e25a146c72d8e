package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The values of holds and of the history are sequences of numbers (signed varints) and strings (a length and bytes). That is a third of
// the bytes of JSON, and etcd keeps each value until it is compacted. All other values are JSON or plain text.

// The versions of the two formats, with which a value begins.
const (
	holdVersion  = "\x01"
	chunkVersion = "\x01"
)

var errDamaged = errors.New("damaged, or written by a later version")

// coder appends values to b, or takes them from its beginning. One function describes a format for both.
type coder struct {
	b       []byte
	reading bool
	bad     bool // something could not be read
}

func number[T ~int64 | ~uint64 | ~uint32](c *coder, v *T) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	n, size := binary.Varint(c.b)
	if size <= 0 {
		c.bad, c.b = true, nil
		return
	}
	*v, c.b = T(n), c.b[size:]
}

func text[T ~string](c *coder, v *T) {
	length := uint64(len(*v))
	number(c, &length)
	if !c.reading {
		c.b = append(c.b, *v...)
		return
	}
	if length > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return
	}
	*v, c.b = T(c.b[:length]), c.b[length:]
}

// version codes the beginning of a value.
func (c *coder) version(v string) {
	if !c.reading {
		c.b = append(c.b, v...)
		return
	}
	rest, ok := bytes.CutPrefix(c.b, []byte(v))
	c.b, c.bad = rest, c.bad || !ok
}

// flags codes which parts follow, or are true.
func (c *coder) flags(all ...*bool) {
	var bits uint64
	for i, flag := range all {
		if *flag {
			bits |= 1 << i
		}
	}
	number(c, &bits)
	for i, flag := range all {
		if c.reading { // what is written may be in use elsewhere
			*flag = bits>>i&1 == 1
		}
	}
}

func (c *coder) wall(t *time.Time) {
	var nanos int64
	if !t.IsZero() {
		nanos = t.UnixNano()
	}
	number(c, &nanos)
	if c.reading && nanos != 0 {
		*t = time.Unix(0, nanos).UTC()
	}
}

func (c *coder) instant(i *lock.Instant) {
	c.wall(&i.Wall)
	number(c, &i.Boot)
}

func (c *coder) owner(o *lock.Owner) {
	text(c, &o.Account)
	text(c, &o.Address)
	number(c, &o.Session)
	text(c, &o.Nonce)
}

// hold codes a hold without its name and token, which are in the key. Its times are those of the cluster.
func (c *coder) hold(h *lock.Hold) {
	r := h.Rule
	if c.reading {
		r = new(lock.Rule)
		h.Rule = r
	}
	renewed := h.Renewed != h.Acquired
	asked := h.Asked != lock.Asked{}
	directory := h.Directory != lock.DirectoryID{}
	c.version(holdVersion)
	c.flags(&h.Shared, &renewed, &asked, &h.Asked.Release, &directory, &r.AllowCwd, &h.Automatic)
	c.owner(&h.Owner)
	c.instant(&h.Acquired)
	if renewed {
		c.instant(&h.Renewed)
	} else {
		h.Renewed = h.Acquired
	}
	if asked {
		number(c, &h.Asked.Age)
		number(c, &h.Asked.Grace)
	}
	if directory {
		number(c, &h.Directory.Inode)
		number(c, &h.Directory.Birth)
		number(c, &h.Directory.Parent)
	}
	text(c, &r.Match)
	number(c, &r.MaxAge)
	number(c, &r.MaxIdle)
	text(c, &r.OnDisconnect)
	number(c, &r.Grace)
	number(c, &r.LockDelay)
	text(c, &r.Release)
}

// entry codes an entry of the history. Of its time only the wall clock's is kept.
func (c *coder) entry(e *lock.Entry) {
	byOther, held, note, file := e.By != e.Owner, e.Held != 0, e.Note != "", e.File != nil
	c.flags(&byOther, &held, &note, &file, &e.Automatic)
	c.wall(&e.At.Wall)
	text(c, &e.Cause)
	text(c, &e.Name)
	number(c, &e.Token)
	c.owner(&e.Owner)
	if byOther {
		c.owner(&e.By)
	} else {
		e.By = e.Owner
	}
	if held {
		number(c, &e.Held)
	}
	if note {
		text(c, &e.Note)
	}
	if file {
		if c.reading {
			e.File = new(lock.Publication)
		}
		text(c, &e.File.Path)
		number(c, &e.File.Bytes)
		text(c, &e.File.SHA256)
	}
}

func encodeHold(h lock.Hold) string {
	c := coder{b: make([]byte, 0, 128)}
	c.hold(&h)
	return string(c.b)
}

func decodeHold(value []byte, n lock.Name, t lock.Token) (h lock.Hold, err error) {
	c := coder{b: value, reading: true}
	h.Name, h.Token = n, t
	if c.hold(&h); c.bad {
		err = errDamaged
	}
	return h, err
}

// appendEntry appends an entry to a chunk of the history, whose version comes before the first.
func appendEntry(chunk []byte, e lock.Entry) []byte {
	c := coder{b: chunk}
	c.entry(&e)
	return c.b
}

// decodeChunk returns the entries of a chunk.
func decodeChunk(chunk []byte) (all []lock.Entry, err error) {
	c := coder{b: chunk, reading: true}
	for c.version(chunkVersion); !c.bad && len(c.b) > 0; {
		var e lock.Entry
		c.entry(&e)
		all = append(all, e)
	}
	if c.bad {
		return nil, errDamaged
	}
	return all, nil
}
