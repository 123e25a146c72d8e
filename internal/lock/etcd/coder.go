package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// The values of holds and of the history are numbers (signed varints) and strings (a length and bytes) behind a byte for the format. They
// take a third of the bytes of JSON, and etcd keeps each value until it is compacted. All other values are JSON or text.

var (
	errDamaged     = errors.New("damaged")
	errOtherFormat = errors.New("damaged, or another version of ftplockd wrote it")
)

// coder appends values to b, or removes them from its beginning. So one function describes a format for both directions.
type coder struct {
	b       []byte
	reading bool
	bad     bool // a value could not be read
	foreign bool // it has another format
}

// reader returns a coder that reads a value.
func reader(value []byte) *coder {
	rest, ok := bytes.CutPrefix(value, []byte(formatVersion))
	return &coder{b: rest, reading: true, bad: !ok, foreign: !ok && len(value) > 0}
}

// err returns why a value could not be read.
func (c *coder) err() error {
	switch {
	case c.foreign:
		return errOtherFormat
	case c.bad:
		return errDamaged
	}
	return nil
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

// flags codes booleans. Some of them are stored, the others state which parts follow.
func (c *coder) flags(all ...*bool) {
	var bits uint64
	for i, flag := range all {
		if *flag {
			bits |= 1 << i
		}
	}
	number(c, &bits)
	for i, flag := range all {
		if c.reading { // a written flag may be in use elsewhere
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
	text(c, &o.JobKey)
}

// hold codes a hold without its name and token, which are in the key. Its times are on the timeline.
func (c *coder) hold(h *lock.Hold) {
	r := h.Rule
	if c.reading {
		r = new(lock.Rule)
		h.Rule = r
	}
	renewed := h.Renewed != h.Acquired
	asked := h.Asked != lock.Asked{}
	directory := h.Directory != lock.DirectoryID{}
	note := h.Note != ""
	c.flags(&h.Shared, &renewed, &asked, &h.Asked.Release, &directory, &r.AllowCwd, &h.Job, &note)
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
	if note {
		text(c, &h.Note)
	}
}

// entry codes an entry of the history, with its time by the wall clock only.
func (c *coder) entry(e *lock.Entry) {
	byOther, held, note, file := e.By != e.Owner, e.Held != 0, e.Note != "", e.File != nil
	c.flags(&byOther, &held, &note, &file, &e.Job)
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
	c := coder{b: append(make([]byte, 0, 128), formatVersion...)}
	c.hold(&h)
	return string(c.b)
}

func decodeHold(value []byte, n lock.Name, t lock.Token) (lock.Hold, error) {
	c, h := reader(value), lock.Hold{Name: n, Token: t}
	c.hold(&h)
	return h, c.err()
}

// appendEntry appends an entry to a chunk of the history, which does not have its first byte yet.
func appendEntry(chunk []byte, e lock.Entry) []byte {
	c := coder{b: chunk}
	c.entry(&e)
	return c.b
}

// decodeChunk returns the entries of a chunk.
func decodeChunk(chunk []byte) (all []lock.Entry, err error) {
	c := reader(chunk)
	for !c.bad && len(c.b) > 0 {
		var e lock.Entry
		c.entry(&e)
		all = append(all, e)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	return all, nil
}
