package locksmith

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"path"
	"time"

	"github.com/jlaffaye/ftp"
)

// info requests the facts of a lock.
func (s *session) info(ctx context.Context, p string) (Info, error) {
	if !s.hasFacts() {
		got, err := s.describe(ctx, p, "")
		return Info{Path: s.abs(p), Held: got.exists, busy: got.exists, since: got.since}, err
	}
	r, err := s.ask(ctx, "SITE LOCK INFO "+p)
	if err == nil && r.transient() { // the server cannot prove at the moment that it is active
		err = fmt.Errorf("%w: %s", ErrUnknown, r.text())
	}
	return newInfo(s.abs(p), r), err
}

// directory describes a directory on a server without facts. The mark distinguishes it from another directory of the same name.
type directory struct {
	exists  bool
	command string    // the command that shows it; "": no command does
	mark    string    // its time
	since   time.Time // zero: not exact
}

// describe requests the time of a directory by MDTM, or reads it from the listing of the parent if MDTM fails (vsftpd has no MDTM of directories).
// command selects one of the two ways.
func (s *session) describe(ctx context.Context, p, command string) (directory, error) {
	defer context.AfterFunc(ctx, func() { s.cut(context.Cause(ctx)) })()
	if command != "LIST" {
		at, err := s.ftp.GetTime(p)
		if err == nil {
			return directory{true, "MDTM", at.String(), at}, nil
		}
		if command == "MDTM" && isCode(err, 550) {
			return directory{command: command}, nil
		}
	}
	if command == "MDTM" || s.broken() != nil {
		return directory{}, s.broken()
	}
	dir := path.Dir(p)
	if dir == "." {
		dir = ""
	}
	entries, err := s.ftp.List(dir)
	if err != nil && !isCode(err, 550) {
		return directory{}, s.broken()
	}
	for _, e := range entries {
		if e.Type == ftp.EntryTypeFolder && path.Base(e.Name) == path.Base(p) {
			return directory{exists: true, command: "LIST", mark: e.Time.String()}, nil
		}
	}
	return directory{command: "LIST"}, nil
}

// isCode reports whether an error of the library is a reply with that code.
func isCode(err error, code int) bool {
	var replied *textproto.Error
	return errors.As(err, &replied) && replied.Code == code
}
