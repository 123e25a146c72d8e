package hostdir

import (
	"context"
	"errors"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Restore implements [lock.Disk]. A missing directory, which a loss of power can remove, is made again; where that is impossible the hold stands
// without one. A marked directory is the lock's even if the record has another one: a loss of power, or a backup, brought it back. With
// Options.Directories off a hold without a directory gets none.
func (d *Disk) Restore(_ context.Context, h lock.Hold) (id lock.DirectoryID, gone bool, err error) {
	if !d.o.Directories && h.Directory == id {
		return id, false, nil
	}
	err = d.changes.run(h.Name.Parent(), func(p *parent) (err error) {
		id, gone, err = d.restore(p, h)
		return err
	})
	if errors.Is(err, lock.ErrNoParent) {
		d.without(h, err)
		err = nil
	}
	return id, gone, err
}

func (d *Disk) without(h lock.Hold, why error) {
	d.o.Log.Warn("a lock's directory cannot be made; the lock stands without it", "lock", h.Name, "err", why)
}

func (d *Disk) restore(p *parent, h lock.Hold) (id lock.DirectoryID, gone bool, err error) {
	s, err := p.look(h.Name)
	switch {
	case err != nil:
		return id, false, err
	case s.is(h.Directory):
		id, err = p.made(s)
		return id, false, err
	case s.directory && d.marks.ours(p, s):
		if id, err = p.made(s); err != nil {
			return id, false, err
		}
	case s.directory: // the host's; a lock that had none stands
		return id, h.Directory != id, nil
	default:
		if id, err = d.make(p, h.Name); err != nil {
			d.without(h, err)
			return id, false, nil
		}
	}
	d.Freshen(lock.Hold{Name: h.Name, Renewed: h.Renewed, Directory: id})
	return id, false, nil
}
