package locksmith

import (
	"context"
	"errors"
	"net/textproto"
	"path"
	"strings"
	"time"

	"github.com/jlaffaye/ftp"
)

// mark is how a directory was when it was looked at: another one of the same name has another mark, if it was not made in the same
// moment. It changes as well when something is put into the directory.
type mark struct {
	value string    // to be compared with marks of the same looker only
	since time.Time // when it was modified last; zero: not known exactly
}

// presence is what a look came to.
type presence int

const (
	unsure  presence = iota // the server could not say
	present                 // the directory is there
	denied                  // 550: not there, or not to be seen this way
)

// looker is one way to look at a directory on a server that knows nothing of locks.
type looker struct {
	name string
	look func(ctx context.Context, s *session, p string) (mark, presence, error)
}

// looks are the ways that may work, the best first. "550" means that nothing is there only from one that saw it before: vsftpd has
// no MDTM of directories, for example.
func looks(s *session) []looker {
	all := []looker{{"MDTM", lookMDTM}, {"LIST", lookList}, {"CWD", lookCWD}}
	if _, ok := s.feats["MLST"]; ok {
		all = append([]looker{{"MLST", lookMLST}}, all...)
	}
	return all
}

func presenceOf(r reply) presence {
	switch {
	case r.good():
		return present
	case r.transient() || r.unknown():
		return unsure
	}
	return denied
}

// lookMLST is MLST (RFC 3659 section 7): when it was modified, and which file it is ("unique").
func lookMLST(ctx context.Context, s *session, p string) (mark, presence, error) {
	r, err := s.ask(ctx, "MLST "+p)
	if err != nil || r.code != 250 || len(r.body()) == 0 {
		if err == nil && r.good() {
			return mark{}, unsure, nil
		}
		return mark{}, presenceOf(r), err
	}
	facts, _, _ := strings.Cut(r.body()[0], " ")
	var m mark
	for fact := range strings.SplitSeq(facts, ";") {
		name, value, _ := strings.Cut(fact, "=")
		switch strings.ToLower(name) {
		case "type":
			if !strings.HasSuffix(strings.ToLower(value), "dir") {
				return mark{}, denied, nil
			}
		case "modify":
			m.since = timeOf(value)
			m.value += "modify=" + value + ";"
		case "unique":
			m.value += "unique=" + value + ";"
		}
	}
	return m, present, nil
}

// lookMDTM is MDTM (RFC 3659 section 3), which many servers answer for directories, too.
func lookMDTM(ctx context.Context, s *session, p string) (mark, presence, error) {
	r, err := s.ask(ctx, "MDTM "+p)
	if err != nil || r.code != 213 {
		return mark{}, presenceOf(r), err
	}
	return mark{value: r.text(), since: timeOf(r.text())}, present, nil
}

// lookList looks for it in the listing of its parent; the times there are to the minute and of any zone.
func lookList(ctx context.Context, s *session, p string) (mark, presence, error) {
	entries, err := s.list(ctx, path.Dir(p))
	var refused *textproto.Error
	switch {
	case s.broken() != nil:
		return mark{}, unsure, s.broken()
	case errors.As(err, &refused) && refused.Code == 550:
		return mark{}, denied, nil
	case err != nil:
		return mark{}, unsure, nil
	}
	for _, e := range entries {
		if e.Type == ftp.EntryTypeFolder && path.Base(e.Name) == path.Base(p) {
			return mark{value: e.Time.String()}, present, nil
		}
	}
	return mark{}, denied, nil
}

// list leaves listing to the library.
func (s *session) list(ctx context.Context, dir string) ([]*ftp.Entry, error) {
	if dir == "." {
		dir = ""
	}
	var entries []*ftp.Entry
	err := s.library(ctx, func() (err error) {
		entries, err = s.ftp.List(dir)
		return err
	})
	return entries, err
}

// lookCWD goes there and comes back; it sees only that there is one.
func lookCWD(ctx context.Context, s *session, p string) (mark, presence, error) {
	if s.home == "" {
		return mark{}, unsure, nil
	}
	r, err := s.ask(ctx, "CWD "+p)
	if err != nil || !r.good() {
		return mark{}, presenceOf(r), err
	}
	back, err := s.ask(ctx, "CWD "+s.home)
	if err == nil && !back.good() {
		err = s.fail("going back to "+s.home, errors.New(back.String()))
	}
	return mark{}, present, err
}

// info asks a server that knows locks. known is false if it does not.
func (s *session) info(ctx context.Context, p string) (i Info, known bool, err error) {
	r, err := s.ask(ctx, "SITE LOCK INFO "+p)
	if err != nil {
		return Info{}, false, err
	}
	i.Path = s.abs(p)
	switch {
	case r.code == 211 && strings.HasPrefix(r.lines[0], "Lock "):
		i.Path = strings.TrimPrefix(r.lines[0], "Lock ")
		for _, line := range r.body() {
			i.addLine(line, time.Now())
		}
		return i, true, nil
	case r.code == 550:
		return i, true, nil
	}
	return i, false, nil
}
