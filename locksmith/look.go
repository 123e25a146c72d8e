package locksmith

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"path"
	"strings"
	"time"

	"github.com/jlaffaye/ftp"
)

// sight is what a look at a directory came to, on a server that knows nothing of locks.
type sight struct {
	there bool
	known bool // the server could say whether it is there
	exact bool // since is exact, and UTC
	since time.Time
}

// mark tells one directory from another of the same name.
type mark struct {
	by    func(*session, string) (sight, error)
	since time.Time
}

// see looks at a directory by MDTM and, where that tells nothing (vsftpd has none of directories), in the listing of its parent. The mark is by
// the first of the two that sees it.
func (s *session) see(p string) (sight, *mark, error) {
	var last sight
	for _, by := range []func(*session, string) (sight, error){byMDTM, byList} {
		got, err := by(s, p)
		if err != nil {
			return sight{}, nil, err
		}
		if got.there {
			return got, &mark{by, got.since}, nil
		}
		if got.known {
			last = got
		}
	}
	return last, nil, nil
}

func byMDTM(s *session, p string) (sight, error) {
	at, err := s.ftp.GetTime(p)
	if err == nil {
		return sight{there: true, known: true, exact: true, since: at}, nil
	}
	return sight{known: isCode(err, 550)}, s.broken()
}

func byList(s *session, p string) (sight, error) {
	dir := path.Dir(p)
	if dir == "." {
		dir = ""
	}
	entries, err := s.ftp.List(dir)
	if err != nil {
		return sight{known: isCode(err, 550)}, s.broken()
	}
	for _, e := range entries {
		if e.Type == ftp.EntryTypeFolder && path.Base(e.Name) == path.Base(p) {
			return sight{there: true, known: true, since: e.Time}, nil
		}
	}
	return sight{known: true}, nil
}

// isCode reports whether an error of the library is a reply with that code.
func isCode(err error, code int) bool {
	var said *textproto.Error
	return errors.As(err, &said) && said.Code == code
}

// info asks a server that knows locks. One of several that cannot prove for the moment that it may say so is ErrUnknown.
func (s *session) info(ctx context.Context, p string) (Info, error) {
	i := Info{Path: s.abs(p)}
	r, err := s.ask(ctx, "SITE LOCK INFO "+p)
	if err != nil {
		return i, err
	}
	if r.transient() {
		return i, fmt.Errorf("%w: %s", ErrUnknown, r.text())
	}
	if r.code == 211 {
		i.Path = strings.TrimPrefix(r.lines()[0], "Lock ")
		for _, line := range r.body() {
			i.addLine(line, time.Now())
		}
	}
	i.None = noLock.MatchString(r.text())
	return i, nil
}
