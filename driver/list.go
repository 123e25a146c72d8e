package driver

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/ftplockd/ftplockd/internal/control"
)

// format is the form of the lines of a listing.
type format uint8

const (
	formatLong  format = iota // LIST, STAT
	formatNames               // NLST
	formatFacts               // MLSD
)

// listing is the content of LIST, NLST, MLSD and STAT: one entry, or the names in a directory that match a pattern. It reads the directory
// while the client reads the lines.
type listing struct {
	client  *client
	view    string
	format  format
	options listOptions
	names   *names // of the directory; nil: only the entry one is listed
	prefix  string // precedes each name in the listing
	pattern string
	one     entry
}

// entry is one line of a listing.
type entry struct {
	shown string // the name for the client, perhaps with a directory before it
	info  fs.FileInfo
}

var errNoDirectory = &refusal{code: 501, text: "is not a directory"} // RFC 3659 section 7.2.1

// listing opens the path that a command lists. Except for MLSD, its last element may be a pattern. If the path or the
// directory of the pattern does not exist, that is an error; a pattern that matches nothing is an empty listing.
func (c *client) listing(f format, param string) (*listing, error) {
	l := &listing{client: c, format: f, options: "a", pattern: "*"}
	if f != formatFacts {
		l.options, param = c.parseListArgument(f, param)
	}
	if l.options.has("l") {
		l.format = formatLong
	}
	l.view = c.abs(param)
	c.look(c.conn.Command(), l.view)
	info, err := c.stat(l.view)
	dir, last := path.Split(param)
	switch {
	case isNotThere(err) && f != formatFacts && isPattern(last):
		l.prefix, l.pattern = dir, last
		c.look(c.conn.Command(), c.abs(dir))
		err = l.list(c.abs(dir))
	case err != nil:
	case f == formatFacts && !info.IsDir():
		err = errNoDirectory
	case l.options.has("d") && last != "" && last != ".":
		info, err = c.statEntry(l.view)
		l.one = entry{param, info}
	case l.options.has("d") || !info.IsDir():
		l.one = entry{cmp.Or(param, "."), info}
	default:
		if l.format == formatNames && param != "" && param != "." { // RFC 1123 section 4.1.2.7: a client can send each name with RETR
			l.prefix = strings.TrimSuffix(param, "/") + "/"
		}
		err = l.list(l.view)
	}
	return l, err
}

// list opens the directory whose names the listing shows.
func (l *listing) list(dir string) (err error) {
	l.names, err = l.client.openNames(dir)
	if err == nil && l.options.has(ordering) {
		l.names.pieceSize = l.client.server.bounds.ordered
	}
	return err
}

// isPattern reports whether the last element of a path is a pattern: *, ? and [...], no braces. A longer one matches no name.
func isPattern(last string) bool {
	_, err := path.Match(last, "")
	return strings.ContainsAny(last, "*?[") && len(last) <= 255 && err == nil
}

// listOptions are the letters that a client sent after LIST or NLST, as for ls: -a and -A list names that begin with a dot, -d lists
// the directory itself, -l makes NLST a LIST, as in vsftpd, and -F adds a slash to directories. -t, -S and -r order by time, by size and
// in reverse. RFC 959 has no options. Clients send other letters, too; these have no effect.
type listOptions string

// ordering has the options that need all names of a directory at a time.
const ordering = "tSr"

var errManyToOrder = &refusal{text: "has too many names for -t, -S and -r: list it without them"}

func (o listOptions) has(letters string) bool { return strings.ContainsAny(string(o), letters) }

// parseListArgument splits the argument of LIST or NLST into options and path. "--" ends the options, so that a name
// may begin with a dash. If the argument of NLST is the name of a file, it is no option: "mdelete -al" sends NLST, and then DELE for each
// listed name. Clients send LIST -al to see the whole directory. Blanks before the path are left out, unless a name begins with them.
func (c *client) parseListArgument(f format, param string) (o listOptions, rest string) {
	rest = c.withoutPadding(param)
	for strings.HasPrefix(rest, "-") && len(rest) > 1 {
		if f == formatNames && c.leadsSomewhere(rest) {
			break
		}
		word, after, _ := strings.Cut(rest, " ")
		rest = c.withoutPadding(after)
		if word == "--" {
			break
		}
		o += listOptions(word[1:])
	}
	return o, rest
}

// withoutPadding removes the blanks at the beginning, unless the name of a file or directory begins with them.
func (c *client) withoutPadding(param string) string {
	trimmed := strings.TrimLeft(param, " ")
	if trimmed != param && trimmed != "" && c.leadsSomewhere(param) {
		return param
	}
	return trimmed
}

// leadsSomewhere reports whether the path exists, or is a pattern in a directory that it names.
func (c *client) leadsSomewhere(param string) bool {
	if _, err := c.stat(c.abs(param)); err == nil {
		return true
	}
	dir, last := path.Split(param)
	if dir == "" || !isPattern(last) {
		return false
	}
	_, err := c.stat(c.abs(dir))
	return err == nil
}

// Close implements content.
func (l *listing) Close() error {
	if l.names == nil {
		return nil
	}
	return l.names.Close()
}

// lines calls f with each line, without its end, until an error.
func (l *listing) lines(f func(line string) error) error {
	if l.names == nil {
		return f(l.line(l.one))
	}
	for {
		piece, err := l.names.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if l.options.has(ordering) && len(piece) >= l.client.server.bounds.ordered {
			return errManyToOrder
		}
		entries, err := l.entries(piece)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := f(l.line(e)); err != nil {
				return err
			}
		}
	}
}

// entries returns the listed names of a piece, described if the lines or the order need that, in the order of the options.
func (l *listing) entries(piece []string) (all []entry, err error) {
	described := l.format != formatNames || l.options.has("FtS")
	for _, name := range piece {
		if !l.matches(name) {
			continue
		}
		e := entry{shown: l.prefix + name}
		if described {
			if e.info, err = l.names.describe(name); err != nil {
				return nil, err
			}
			if e.info == nil {
				continue
			}
		}
		all = append(all, e)
	}
	switch {
	case l.options.has("t"):
		slices.SortStableFunc(all, func(a, b entry) int { return b.info.ModTime().Compare(a.info.ModTime()) })
	case l.options.has("S"):
		slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(b.info.Size(), a.info.Size()) })
	}
	if l.options.has("r") {
		slices.Reverse(all)
	}
	return all, nil
}

// matches reports whether a name in the directory is listed. A name that contains a line end is not: it would look like two names.
func (l *listing) matches(name string) bool {
	hidden := strings.HasPrefix(name, ".") && !strings.HasPrefix(l.pattern, ".") && !l.options.has("aA")
	if hidden || strings.ContainsAny(name, "\r\n") {
		return false
	}
	matched, _ := path.Match(l.pattern, name)
	return matched
}

// line formats one entry. The info of an entry may be nil in a listing of names only.
func (l *listing) line(e entry) string {
	line := e.shown
	switch l.format {
	case formatLong:
		line = formatLine(e, l.client.server.clock.Now().Wall)
	case formatFacts:
		line = l.client.formatFacts(e)
	}
	if l.options.has("F") && e.info.IsDir() {
		line += "/"
	}
	return line
}

// WriteTo implements io.WriterTo: it writes all lines with their ends.
func (l *listing) WriteTo(w io.Writer) (n int64, err error) {
	b := bufio.NewWriterSize(w, 16<<10)
	err = l.lines(func(line string) error {
		m, err := b.WriteString(line + "\r\n")
		n += int64(m)
		return err
	})
	return n, cmp.Or(err, b.Flush())
}

// statListing is STAT of a path, as LIST would list it (RFC 959 section 4.1.3).
func (c *client) statListing(param string) (control.Reply, error) {
	l, err := c.listing(formatLong, param)
	if err != nil {
		return control.Reply{}, err
	}
	return control.Reply{Code: 213, Text: "Status of " + l.view + ":", Rows: func(line func(string) error) (string, error) {
		defer l.Close()
		var sending error
		err := l.lines(func(text string) error {
			sending = line(" " + text)
			return sending
		})
		if err == nil || sending != nil {
			return "End of status", sending
		}
		return "This status is not complete: " + c.replyFor("", err).Text, nil
	}}, nil
}
