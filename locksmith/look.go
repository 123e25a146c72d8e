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

// info returns what the server tells of a lock.
func (s *session) info(ctx context.Context, p string) (Info, error) {
	if !s.hasFacts() {
		got, err := s.see(ctx, p, "")
		return Info{Path: s.abs(p), Held: got.there, busy: got.there, Since: got.since}, err
	}
	r, err := s.ask(ctx, "SITE LOCK INFO "+p)
	if err == nil && r.transient() { // one of several servers that cannot prove for the moment that it may tell
		err = fmt.Errorf("%w: %s", ErrUnknown, r.text())
	}
	return newInfo(s.abs(p), r), err
}

// sight is what a look at a directory came to, on a server without facts. The mark tells one directory from another of the same name.
type sight struct {
	there bool
	by    string    // the command that sees it; "": none does
	mark  string    // its time, as exact as the server tells it
	since time.Time // zero: not exact
}

// see looks at a directory by MDTM and, where that tells nothing (vsftpd has none of directories), in the listing of its parent; or by one of the
// two alone.
func (s *session) see(ctx context.Context, p, by string) (sight, error) {
	defer context.AfterFunc(ctx, func() { s.link.cut(context.Cause(ctx)) })()
	if by != "LIST" {
		at, err := s.ftp.GetTime(p)
		if err == nil {
			return sight{true, "MDTM", at.String(), at}, nil
		}
		if by == "MDTM" && isCode(err, 550) {
			return sight{by: by}, nil
		}
	}
	if by == "MDTM" || s.broken() != nil {
		return sight{}, s.broken()
	}
	dir := path.Dir(p)
	if dir == "." {
		dir = ""
	}
	entries, err := s.ftp.List(dir)
	if err != nil && !isCode(err, 550) {
		return sight{}, s.broken()
	}
	for _, e := range entries {
		if e.Type == ftp.EntryTypeFolder && path.Base(e.Name) == path.Base(p) {
			return sight{there: true, by: "LIST", mark: e.Time.String()}, nil
		}
	}
	return sight{by: "LIST"}, nil
}

// isCode reports whether an error of the library is a reply with that code.
func isCode(err error, code int) bool {
	var replied *textproto.Error
	return errors.As(err, &replied) && replied.Code == code
}
