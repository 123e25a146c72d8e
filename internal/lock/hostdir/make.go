package hostdir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// makeTries is the number of attempts of Make while programs on the host make and remove the same directory.
const makeTries = 3

// Free implements [lock.Disk].
func (d *Disk) Free(n lock.Name) bool { return !d.o.MakeDirectories && d.o.FS.IsFree(string(n)) }

// Make implements [lock.Disk]. It does not return before mkdir does, even if ctx ends. With Options.MakeDirectories off it
// makes nothing: it checks whether the name is free, and returns the zero id.
func (d *Disk) Make(ctx context.Context, n lock.Name) (lock.DirectoryID, error) {
	if d.o.MakeDirectories {
		return d.Create(ctx, n)
	}
	dir, err := d.dirs.enter(n.Parent())
	if err != nil {
		return lock.DirectoryID{}, err
	}
	defer d.dirs.leave(dir)
	if err = d.freeName(&dir.parent, n); errors.Is(err, lock.ErrHeld) {
		err = &fs.PathError{Op: "mkdir", Path: string(n), Err: fs.ErrExist}
	}
	return lock.DirectoryID{}, err
}

// Check implements [lock.Disk].
func (d *Disk) Check(_ context.Context, n lock.Name) error {
	if !d.o.MakeDirectories {
		return nil
	}
	dir, err := d.dirs.enter(n.Parent())
	if err == nil {
		defer d.dirs.leave(dir)
		err = d.freeName(&dir.parent, n)
	}
	if errors.Is(err, lock.ErrNoParent) {
		return nil
	}
	return err
}

// Create implements [lock.Disk]. It does not return before mkdir does, even if ctx ends.
func (d *Disk) Create(_ context.Context, n lock.Name) (lock.DirectoryID, error) {
	dir, err := d.dirs.enter(n.Parent())
	if err != nil {
		return lock.DirectoryID{}, err
	}
	defer d.dirs.leave(dir)
	return d.makeDirectory(&dir.parent, n)
}

func (d *Disk) makeDirectory(p *parent, n lock.Name) (id lock.DirectoryID, err error) {
	for range makeTries {
		if err := d.o.Valid(); err != nil {
			return id, err
		}
		err = p.Mkdir(n.Base(), 0o755|fs.ModeSticky)
		switch {
		case errors.Is(err, fs.ErrExist):
			if err := d.freeName(p, n); err != nil {
				return id, err
			}
			continue
		case missing(err):
			return id, fmt.Errorf("%s: %w", p.name, lock.ErrNoParent)
		case err != nil:
			return id, err
		}
		s, err := p.entryOf(n)
		if err == nil && s.directory {
			id, err = p.withParent(s)
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

// freeName returns nil if nothing has the name. It removes a directory that a crash left. The error describes anything else.
func (d *Disk) freeName(p *parent, n lock.Name) error {
	s, err := p.entryOf(n)
	switch {
	case err != nil || !s.found:
		return err
	case !s.directory:
		return fmt.Errorf("%s: %w", n, lock.ErrNotDirectory)
	case p.isMarked(s):
		return d.removeLeftover(p, n)
	}
	return &lock.HostError{Name: n, Since: s.modified}
}

// removeLeftover removes a directory that a crash left, or moves it aside with the files in it. The next hold gets a new directory, since
// another server that ends late may remove this one.
func (d *Disk) removeLeftover(p *parent, n lock.Name) error {
	to, err := "", d.rmdir(p, n)
	if notEmpty(err) {
		to, err = d.aside(n, lock.HostAccount, 0)
	}
	if err != nil && !missing(err) {
		return err
	}
	d.o.Log.Info("the directory of a lock that a crash had left was removed, or moved aside with its files", "lock", n, "leftovers", to)
	return nil
}

// rmdir removes an empty directory while this server may change locks.
func (d *Disk) rmdir(p *parent, n lock.Name) error {
	if err := d.o.Valid(); err != nil {
		return err
	}
	return p.RemoveDir(n.Base())
}

// aside calls Aside of the tree while this server may change locks.
func (d *Disk) aside(n lock.Name, by string, token lock.Token) (to string, err error) {
	if err := d.o.Valid(); err != nil {
		return "", err
	}
	return d.o.FS.Aside(string(n), by, uint64(token))
}

// Remove implements [lock.Disk]. It does not return before rmdir does, even if ctx ends.
func (d *Disk) Remove(_ context.Context, h lock.Hold, cause lock.Cause) (note string, err error) {
	if h.Directory == (lock.DirectoryID{}) {
		return "", nil
	}
	dir, err := d.dirs.enter(h.Name.Parent())
	if errors.Is(err, lock.ErrNoParent) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer d.dirs.leave(dir)
	return d.removeDirectory(&dir.parent, h, cause)
}

func (d *Disk) removeDirectory(p *parent, h lock.Hold, cause lock.Cause) (note string, err error) {
	s, err := p.entryOf(h.Name)
	if err != nil {
		return "", err
	}
	if !s.matches(h.Directory) {
		return "", p.goneError(h)
	}
	err = d.rmdir(p, h.Name)
	switch {
	case missing(err):
		return "", p.goneError(h)
	case !notEmpty(err):
		return "", err
	case cause == lock.CauseRelease:
		return "", fmt.Errorf("%s: %w", h.Name, lock.ErrNotEmpty)
	}
	to, err := d.aside(h.Name, h.Owner.Account, h.Token)
	if err != nil {
		return "", err
	}
	d.o.Log.Warn("the files in a lock were moved aside", "lock", h.Name, "token", h.Token, "holder", h.Owner.String(), "leftovers", to)
	return "left over: " + to, nil
}

// goneError returns lock.ErrDirectoryGone if the directory of the hold was made in this parent.
func (p *parent) goneError(h lock.Hold) error {
	if had, err := p.isParentOf(h); err != nil || !had {
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

// Restore implements [lock.Disk]. A missing directory, which a loss of power can remove, is made again. If that is impossible the hold
// stands without one. A marked directory is the lock's even if the record has another one: a loss of power, or a backup, brought it
// back. With Options.MakeDirectories off a hold without a directory gets none.
func (d *Disk) Restore(_ context.Context, h lock.Hold) (id lock.DirectoryID, gone bool, err error) {
	if !d.o.MakeDirectories && h.Directory == id {
		return id, false, nil
	}
	dir, err := d.dirs.enter(h.Name.Parent())
	if errors.Is(err, lock.ErrNoParent) {
		d.logMissing(h, err)
		return id, false, nil
	}
	if err != nil {
		return id, false, err
	}
	defer d.dirs.leave(dir)
	return d.restoreDirectory(&dir.parent, h)
}

func (d *Disk) logMissing(h lock.Hold, why error) {
	d.o.Log.Warn("a lock's directory cannot be made; the lock stands without it", "lock", h.Name, "err", why)
}

func (d *Disk) restoreDirectory(p *parent, h lock.Hold) (id lock.DirectoryID, gone bool, err error) {
	s, err := p.entryOf(h.Name)
	switch {
	case err != nil:
		return id, false, err
	case s.matches(h.Directory):
		id, err = p.withParent(s)
		return id, false, err
	case s.directory && p.isMarked(s):
		if id, err = p.withParent(s); err != nil {
			return id, false, err
		}
	case s.directory: // the host's; a lock that had none stands
		return id, h.Directory != id, nil
	default:
		if id, err = d.makeDirectory(p, h.Name); err != nil {
			d.logMissing(h, err)
			return id, false, nil
		}
	}
	d.Freshen(lock.Hold{Name: h.Name, Renewed: h.Renewed, Directory: id})
	return id, false, nil
}
