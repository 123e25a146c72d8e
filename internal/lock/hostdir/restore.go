package hostdir

import (
	"context"
	"errors"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Restore implements [lock.Disk]. A missing directory, which a loss of power can remove, is made again; where that is impossible the hold stands
// without one. A marked directory is the lock's even if the record has another one: a loss of power, or a backup, brought it back.
//
// With Options.Directories off no hold is gone. It gets no directory, and an empty one is removed, which would block the
// name later. One that is not empty stays the lock's.
func (d *Disk) Restore(ctx context.Context, h lock.Hold) (id lock.DirectoryID, gone bool, err error) {
	if !d.o.Directories && h.Directory == id {
		return id, false, nil
	}
	err = d.changes.run(ctx, h.Name.Parent(), func(p *parent) (err error) {
		if d.o.Directories {
			id, gone, err = d.restore(p, h)
		} else {
			id, err = d.discard(p, h)
		}
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
		d.keep(h.Name, p, h.Directory)
		return h.Directory, false, nil
	case s.directory && d.marks.ours(p, s):
		d.keep(h.Name, p, s.id)
		id = s.id
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

// discard removes a lock's directory if it is empty, and returns the one that the lock has from now on.
func (d *Disk) discard(p *parent, h lock.Hold) (id lock.DirectoryID, err error) {
	s, err := p.look(h.Name)
	if err != nil || !s.is(h.Directory) {
		return id, err
	}
	err = p.RemoveDir(h.Name.Base())
	if err == nil || missing(err) {
		return id, nil
	}
	if !notEmpty(err) {
		d.o.Log.Warn("the directory of a held lock cannot be removed", "lock", h.Name, "err", err)
	}
	d.keep(h.Name, p, h.Directory)
	return h.Directory, nil
}
