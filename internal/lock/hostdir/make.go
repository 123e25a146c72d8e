package hostdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// makeTries is how often Make tries when programs on the host make and remove the same directory meanwhile.
const makeTries = 3

// Free implements [lock.Disk].
func (d *Disk) Free(n lock.Name) bool { return !d.o.Directories && d.o.FS.IsFree(string(n)) }

// Make implements [lock.Disk]. It does not end before mkdir does, even if ctx ends. With Options.Directories off it
// makes nothing: it finds out whether the name is free, and returns the zero id.
func (d *Disk) Make(ctx context.Context, n lock.Name) (lock.DirectoryID, error) {
	if d.o.Directories {
		return d.Create(ctx, n)
	}
	err := d.check(n)
	if errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrOccupied) {
		err = &fs.PathError{Op: "mkdir", Path: string(n), Err: fs.ErrExist}
	}
	return lock.DirectoryID{}, err
}

// check returns nil if the name is free.
func (d *Disk) check(n lock.Name) error {
	p, err := d.open(n.Parent())
	if err != nil {
		return err
	}
	s, err := p.look(n)
	p.Close()
	if err != nil || !s.found {
		return err
	}
	return d.changes.run(n.Parent(), func(p *parent) error { return d.clear(p, n) })
}

// Create implements [lock.Disk]. It does not end before mkdir does, even if ctx ends.
func (d *Disk) Create(_ context.Context, n lock.Name) (id lock.DirectoryID, err error) {
	err = d.changes.run(n.Parent(), func(p *parent) (err error) {
		id, err = d.make(p, n)
		return err
	})
	return id, err
}

func (d *Disk) make(p *parent, n lock.Name) (id lock.DirectoryID, err error) {
	for range makeTries {
		err = p.Mkdir(n.Base(), 0o755|fs.ModeSticky)
		switch {
		case errors.Is(err, fs.ErrExist):
			if err := d.clear(p, n); err != nil {
				return id, err
			}
			continue
		case missing(err):
			return id, fmt.Errorf("%s: %w", p.name, lock.ErrNoParent)
		case err != nil:
			return id, err
		}
		s, err := p.look(n)
		if err == nil && s.directory {
			id, err = p.made(s)
		}
		switch {
		case err != nil:
			return id, errors.Join(err, p.RemoveDir(n.Base()))
		case s.directory:
			return id, nil
		}
	}
	return id, &fs.PathError{Op: "mkdir", Path: string(n), Err: syscall.EBUSY}
}

// clear returns nil if nothing has the name, or no longer does since a crash had left it; otherwise an error that describes what has it.
func (d *Disk) clear(p *parent, n lock.Name) error {
	s, err := p.look(n)
	switch {
	case err != nil || !s.found:
		return err
	case !s.directory:
		return fmt.Errorf("%s: %w", n, lock.ErrNotDirectory)
	case d.marks.ours(p, s):
		return d.clean(p, n)
	case d.occupied(n):
		return fmt.Errorf("%s: %w", n, lock.ErrOccupied)
	}
	return &lock.HostError{Name: n, Since: s.modified}
}

// clean removes a directory that a crash left, or moves it aside with what is in it. It is not used again, so that another
// server that ends late and removes its directory does not remove that of the next hold.
func (d *Disk) clean(p *parent, n lock.Name) error {
	to, err := "", p.RemoveDir(n.Base())
	if notEmpty(err) {
		to, err = d.aside(n)
	}
	if err != nil && !missing(err) {
		return err
	}
	d.o.Log.Info("the directory of a lock that a crash had left was removed", "lock", n, "leftovers", to)
	return nil
}

// aside moves a directory without a hold out of the way.
func (d *Disk) aside(n lock.Name) (to string, err error) {
	for number := range uint64(100) {
		to, err = d.o.FS.Aside(string(n), string(n), lock.HostAccount, number)
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.EISDIR) {
			break
		}
	}
	return to, err
}

// Remove implements [lock.Disk]. It does not end before rmdir does, even if ctx ends.
func (d *Disk) Remove(_ context.Context, h lock.Hold, cause lock.Cause) (note string, err error) {
	if h.Directory == (lock.DirectoryID{}) {
		return "", nil
	}
	err = d.changes.run(h.Name.Parent(), func(p *parent) (err error) {
		note, err = d.remove(p, h, cause)
		return err
	})
	if errors.Is(err, lock.ErrNoParent) {
		err = nil
	}
	return note, err
}

func (d *Disk) remove(p *parent, h lock.Hold, cause lock.Cause) (note string, err error) {
	s, err := p.look(h.Name)
	if err != nil {
		return "", err
	}
	if !s.is(h.Directory) {
		return "", p.goneFrom(h)
	}
	err = p.RemoveDir(h.Name.Base())
	switch {
	case missing(err):
		return "", p.goneFrom(h)
	case !notEmpty(err):
		return "", err
	case cause == lock.CauseRelease:
		return "", fmt.Errorf("%s: %w", h.Name, lock.ErrNotEmpty)
	}
	to, err := d.o.FS.Aside(string(h.Name), string(h.Name), h.Owner.Account, uint64(h.Token))
	if err != nil {
		return "", err
	}
	d.o.Log.Warn("what was in a lock was moved aside", "lock", h.Name, "token", h.Token, "holder", h.Owner.String(), "leftovers", to)
	return "left over: " + to, nil
}

// goneFrom returns lock.ErrDirectoryGone if the parent is the one in which the directory was made.
func (p *parent) goneFrom(h lock.Hold) error {
	if had, err := p.had(h); err != nil || !had {
		return err
	}
	return fmt.Errorf("%s: %w", h.Name, lock.ErrDirectoryGone)
}

// Freshen implements [lock.Disk]. A job on the host that removes old directories must not remove that of a fresh hold.
func (d *Disk) Freshen(h lock.Hold) {
	if h.Directory == (lock.DirectoryID{}) {
		return
	}
	if err := d.o.FS.Chtimes(string(h.Name), h.Renewed.Wall, h.Renewed.Wall); err != nil {
		d.o.Log.Warn("the modification time of a lock's directory could not be set", "lock", h.Name, "err", err)
	}
}
