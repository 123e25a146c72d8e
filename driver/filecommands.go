package driver

import (
	"bytes"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/files"
)

func (s *session) dele(cmd control.Command) control.Decision {
	return s.withPath(cmd.Param, 250, "removed", func(view string) error { return s.client.delete(s.context(), view) })
}

func (s *session) rnfr(cmd control.Command) control.Decision {
	s.renameFrom = ""
	return s.withPath(cmd.Param, 350, "is there: now RNTO", func(view string) error {
		err := s.client.mayMoveFrom(view)
		if err == nil {
			s.renameFrom = view
		}
		return err
	})
}

func (s *session) rnto(cmd control.Command) control.Decision {
	from := s.renameFrom
	s.renameFrom = ""
	if from == "" {
		return reply(503, "RNFR comes before RNTO")
	}
	return s.withPath(cmd.Param, 250, "is the new name", func(view string) error {
		return s.client.move(s.context(), from, view)
	})
}

// size is SIZE (RFC 3659 section 4): bytes as they lie on disk, in ASCII type too, as vsftpd has it.
func (s *session) size(cmd control.Command) control.Decision {
	if n, ok := s.kept(cmd.Param); ok {
		return reply(213, strconv.FormatInt(n, 10))
	}
	return s.describe(cmd.Param, func(info fs.FileInfo) (string, error) {
		switch {
		case isVirtual(info): // a client that compares it with what RETR sends would think that bytes were lost
			return "", errChanging
		case info.IsDir():
			return "", errIsDir
		case !info.Mode().IsRegular():
			return "", files.ErrNotRegular
		}
		return strconv.FormatInt(info.Size(), 10), nil
	})
}

// kept says how much there is of an upload that was broken off and that the account can go on with.
func (s *session) kept(param string) (int64, bool) {
	view, err := s.abs(param)
	if err != nil {
		return 0, false
	}
	return s.client.kept(view)
}

// mdtm is MDTM (RFC 3659 section 3); of a lock: when it was acquired.
func (s *session) mdtm(cmd control.Command) control.Decision {
	return s.describe(cmd.Param, func(info fs.FileInfo) (string, error) {
		return info.ModTime().UTC().Format(timeValue), nil
	})
}

// describe answers 213 with something about a file.
func (s *session) describe(param string, say func(fs.FileInfo) (string, error)) control.Decision {
	view, err := s.abs(param)
	if err != nil {
		return s.refuse("", err)
	}
	info, err := s.client.stat(view)
	if err != nil {
		return s.refuse(view, err)
	}
	text, err := say(info)
	if err != nil {
		return s.refuse(view, err)
	}
	return reply(213, text)
}

// mfmt is MFMT (draft-somers-ftp-mfxx).
func (s *session) mfmt(cmd control.Command) control.Decision {
	stamp, name, ok := strings.Cut(cmd.Param, " ")
	when, err := time.Parse(timeValue, stamp)
	if !ok || err != nil || name == "" {
		return reply(501, "MFMT wants YYYYMMDDHHMMSS in UTC and a path")
	}
	view, err := s.abs(name)
	if err == nil {
		err = s.client.Chtimes(view, when, when)
	}
	if err != nil {
		return s.refuse(view, err)
	}
	return reply(213, "Modify="+stamp+"; "+view)
}

// mlst is MLST (RFC 3659 section 7).
func (s *session) mlst(cmd control.Command) control.Decision {
	view, err := s.abs(cmd.Param)
	if err != nil {
		return s.refuse("", err)
	}
	info, err := s.client.stat(view)
	if err != nil {
		return s.refuse(view, err)
	}
	var b bytes.Buffer
	s.facts.appendFacts(&b, entry{name: view, info: info}, s.client.account.rights())
	return control.Answer(control.Reply{Code: 250, Text: "facts about it", Lines: []string{" " + b.String()}})
}

func (s *session) avbl(cmd control.Command) control.Decision {
	view, err := s.abs(cmd.Param)
	if err != nil {
		return s.refuse("", err)
	}
	available, err := s.client.GetAvailableSpace(view)
	if err != nil {
		return s.refuse(view, err)
	}
	return reply(213, strconv.FormatInt(available, 10))
}

func opening(view string) string { return "opening data connection for " + view }

// retr is RETR.
func (s *session) retr(cmd control.Command) control.Decision {
	view, err := s.abs(cmd.Param)
	if err != nil {
		return s.refuse("", err)
	}
	o := files.DownloadOptions{Offset: s.rest, ASCII: s.ascii, Pace: s.pace()}
	client := s.client
	return s.begin(&transfer{view: view, opening: opening(view), quick: true, open: func(t *transfer) (cargo, error) {
		from, err := client.content(view, o)
		if err != nil {
			return nil, err
		}
		return &download{source: from, t: t, pace: o.Pace, done: "transfer complete"}, nil
	}})
}

func (s *session) stor(cmd control.Command) control.Decision {
	return s.upload(cmd.Param, files.UploadOptions{Offset: s.rest, HasOffset: s.restSet})
}

func (s *session) appe(cmd control.Command) control.Decision {
	return s.upload(cmd.Param, files.UploadOptions{Append: true})
}

func (s *session) stou(cmd control.Command) control.Decision {
	return s.upload(cmd.Param, files.UploadOptions{Unique: true})
}

func (s *session) upload(param string, o files.UploadOptions) control.Decision {
	view, err := s.abs(param)
	if err != nil {
		return s.refuse("", err)
	}
	o.ASCII, o.Pace = s.ascii, s.pace()
	var announced int64
	if !s.ascii {
		announced = s.allocated
	}
	client := s.client
	copies := o.Append || o.HasOffset // of what may be large
	return s.begin(&transfer{view: view, opening: opening(view), quick: !copies, open: func(t *transfer) (cargo, error) {
		o := client.resuming(view, o)
		r, name, err := client.receive(view, o)
		if err != nil {
			return nil, err
		}
		if o.Unique {
			t.found(name, "FILE: "+name) // RFC 1123 section 4.1.2.9
		}
		return &upload{receiver: r, t: t, announced: announced, pace: o.Pace, owner: o.Owner}, nil
	}})
}
