package driver

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/files"
)

// listFormat is how a listing is written.
type listFormat uint8

const (
	formatLong  listFormat = iota // LIST, STAT
	formatNames                   // NLST
	formatFacts                   // MLSD
)

// errNotDirectoryArgument is 501 by RFC 3659 section 7.2.1.
var errNotDirectoryArgument = &refusal{code: 501, text: "is not a directory", is: fs.ErrInvalid}

func (s *session) list(cmd control.Command) control.Decision { return s.send(cmd.Param, formatLong) }
func (s *session) nlst(cmd control.Command) control.Decision { return s.send(cmd.Param, formatNames) }
func (s *session) mlsd(cmd control.Command) control.Decision { return s.send(cmd.Param, formatFacts) }

// send sends a listing over the data connection.
func (s *session) send(param string, format listFormat) control.Decision {
	pace := s.pace()
	return s.begin(&transfer{
		view: cmp.Or(param, s.cwd),
		open: func(t *transfer) (cargo, error) {
			content, view, err := s.listing(param, format)
			t.found(view, "here comes the listing")
			if err != nil {
				return nil, err
			}
			from, err := newText(content, files.DownloadOptions{Pace: pace})
			return &download{source: from, t: t, pace: pace, done: "listing sent"}, err
		},
	})
}

// listing makes what LIST, NLST, MLSD or STAT show of a path or, but for MLSD, a glob.
// A path that is not there is an error; a glob that fits nothing is an empty listing.
func (s *session) listing(param string, format listFormat) (content []byte, view string, err error) {
	var o listOptions
	if format == formatFacts {
		o.all = true
	} else {
		o, param = parseListArgument(param, s.exists)
	}
	view, err = s.abs(param)
	if err != nil {
		return nil, "", err
	}
	entries, err := s.entries(view, param, format, o)
	if err != nil {
		return nil, view, err
	}
	var b bytes.Buffer
	for _, e := range entries {
		if strings.ContainsAny(e.name, "\r\n") {
			continue // a name that would forge another line
		}
		s.appendEntry(&b, e, format, o)
		b.WriteString("\r\n")
	}
	return b.Bytes(), view, nil
}

func (s *session) exists(param string) bool {
	view, err := s.abs(param)
	if err != nil {
		return false
	}
	_, err = s.client.stat(view)
	return err == nil
}

func (s *session) entries(view, param string, format listFormat, o listOptions) ([]entry, error) {
	info, err := s.client.stat(view)
	switch {
	case err != nil && format != formatFacts && errors.Is(err, fs.ErrNotExist) && hasGlob(param):
		found, err := s.glob(param, o.all)
		o.all = true // the pattern has chosen
		return o.arrange(found), err
	case err != nil:
		return nil, err
	case info.IsDir() && !o.directory:
		entries, err := s.client.list(view)
		entries = o.arrange(entries)
		if format == formatNames && param != "" && param != "." { // RFC 1123 section 4.1.2.7: each name is to be good for RETR
			for i := range entries {
				entries[i].name = joinShown(param, entries[i].name)
			}
		}
		return entries, err
	case format == formatFacts:
		return nil, errNotDirectoryArgument
	}
	name := param
	if name == "" {
		name = "."
	}
	return []entry{shown(name, info)}, nil
}

func (s *session) appendEntry(b *bytes.Buffer, e entry, format listFormat, o listOptions) {
	switch format {
	case formatLong:
		appendLong(b, e, s.server.clock.Now().Wall)
	case formatNames:
		b.WriteString(e.name)
	case formatFacts:
		s.facts.appendFacts(b, e, s.client.account.rights())
	}
	if o.classify && e.info.IsDir() {
		b.WriteByte('/')
	}
}

func hasGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

// usualLooks is how many names one pattern may look at: in a tree with links it could go in circles.
const usualLooks = 250_000

var errTooMany = &refusal{text: "fits too many names", is: fs.ErrInvalid}

// globbing is the search for what a pattern with *, ? and [...] in any of its elements fits. Names that begin with
// a dot are found by patterns that do, or with all.
type globbing struct {
	session *session
	all     bool
	looks   int // how many names it looked at
}

// glob finds what a pattern fits, or fails with errTooMany.
func (s *session) glob(pattern string, all bool) ([]entry, error) {
	// Cleaned, as every path is: each ".." that follows a star would look at the whole directory again.
	pattern = path.Clean(pattern)
	shown := ""
	if strings.HasPrefix(pattern, "/") {
		shown = "/"
	}
	g := globbing{session: s, all: all}
	found := []entry{{name: shown}}
	for element := range strings.SplitSeq(strings.Trim(pattern, "/"), "/") {
		var next []entry
		for _, e := range found {
			next = append(next, g.element(e.name, element)...)
			if g.looks > s.server.maxLooks {
				return nil, errTooMany
			}
		}
		found = next
	}
	return found, nil
}

// element finds what one element of the pattern fits in a directory.
func (g *globbing) element(dir, element string) []entry {
	g.looks++
	if !hasGlob(element) {
		name := joinShown(dir, element)
		view, err := g.session.abs(name)
		if err != nil {
			return nil
		}
		info, err := g.session.client.stat(view)
		if err != nil {
			return nil
		}
		return []entry{shown(name, info)}
	}
	view, err := g.session.abs(dir)
	if err != nil {
		return nil
	}
	entries, err := g.session.client.list(view)
	if err != nil {
		return nil
	}
	g.looks += len(entries)
	var found []entry
	for _, e := range entries {
		hidden := strings.HasPrefix(e.name, ".") && !strings.HasPrefix(element, ".") && !g.all
		if fits, err := path.Match(element, e.name); err == nil && fits && !hidden {
			e.name = joinShown(dir, e.name)
			found = append(found, e)
		}
	}
	return found
}

// joinShown is path.Join without cleaning: the client gets back the directory as it wrote it.
func joinShown(dir, name string) string {
	if dir == "" || strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}
