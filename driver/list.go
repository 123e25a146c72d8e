package driver

import (
	"bufio"
	"cmp"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// format is how a listing is written.
type format uint8

const (
	formatLong  format = iota // LIST, STAT
	formatNames               // NLST
	formatFacts               // MLSD
)

// listing is what LIST, NLST, MLSD and STAT show. It reads names and makes lines as the client reads them, and holds few at a time.
type listing struct {
	client  *client
	view    string
	format  format
	options listOptions
	sources []source
	looks   int // how many names patterns have looked at: in a tree with links they could go in circles
	bytes   int // about how much memory sources take, see hold
}

// source is one name, or a directory whose names are shown.
type source struct {
	entry          // of a directory only shown, which precedes its names
	in      string // the directory; "": one name
	pattern string // which names of the directory are shown; "": all
}

// entry is one line of a listing.
type entry struct {
	shown string // the name for the client, perhaps with a directory before it
	info  fs.FileInfo
	name  lock.Name // of what info describes, for MLSD and MLST
}

// listing finds what a command shows: a path or, except for MLSD, a pattern. A path that does not exist is an error; a
// pattern that fits no name is an empty listing.
func (c *client) listing(f format, param string) (*listing, error) {
	l := &listing{client: c, format: f, options: "a"}
	if f != formatFacts {
		l.options, param = c.parseListArgument(f, param)
	}
	if l.options.has("l") {
		l.format = formatLong
	}
	l.view = c.abs(param)
	c.look(c.conn.Command(), l.view)
	err := l.find(param)
	if err == nil && l.options.has("tS") {
		err = l.sort()
	}
	if err != nil {
		l.Close()
	}
	return l, err
}

// listOptions are the letters that a client gave behind LIST or NLST, as for ls: -a and -A show names that begin with a dot, -d shows
// the directory itself, -l makes NLST a LIST, as in vsftpd, -F adds a slash to directories, -t, -S and -r sort. RFC 959 has no
// options, and clients send others, too: those have no effect.
type listOptions string

func (o listOptions) has(letters string) bool { return strings.ContainsAny(string(o), letters) }

// parseListArgument splits the argument of LIST or NLST into options and path. "--" ends the options, so that a name
// may begin with a dash. An argument of NLST that is the name of a file is no option: "mdelete -al" sends NLST, and then DELE for each
// listed name. Clients send LIST -al to see the whole directory.
func (c *client) parseListArgument(f format, param string) (o listOptions, rest string) {
	rest = strings.TrimLeft(param, " ")
	for strings.HasPrefix(rest, "-") && len(rest) > 1 {
		if _, err := c.stat(c.abs(rest)); err == nil && f == formatNames {
			break
		}
		word, after, _ := strings.Cut(rest, " ")
		rest = strings.TrimLeft(after, " ")
		if word == "--" {
			break
		}
		o += listOptions(word[1:])
	}
	return o, rest
}

const (
	// listingFree is how many bytes each listing may hold, and listingsMax how many all of them may hold together beyond that,
	// until their clients have read them.
	listingFree = 64 << 10
	listingsMax = 64 << 20
	// entryBytes is about what an entry takes beside its name, and directoryBytes what a directory takes that a pattern fits.
	entryBytes, directoryBytes = 512, 128
	// heldMax is how many names a listing may hold: directories that a pattern fits, and names sorted by time or size.
	heldMax = 10_000
)

var (
	errManyListings  = &refusal{code: 450, text: "too many long listings are being read: try again, or list without options and pattern"}
	errTooManyToSort = &refusal{text: "too many names to sort by time or size"}
	errNoDirectory   = &refusal{code: 501, text: "is not a directory"} // RFC 3659 section 7.2.1
)

// hold counts bytes that are held until Close.
func (l *listing) hold(n int) error {
	before := max(l.bytes-listingFree, 0)
	l.bytes += n
	more := max(l.bytes-listingFree, 0) - before
	if l.client.server.listings.Add(int64(more)) > l.client.server.listingsMax && more > 0 {
		return errManyListings
	}
	return nil
}

// Close implements content. A second call does nothing.
func (l *listing) Close() error {
	l.client.server.listings.Add(-int64(max(l.bytes-listingFree, 0)))
	l.bytes = 0
	return nil
}

// find sets the sources.
func (l *listing) find(param string) error {
	info, err := l.client.stat(l.view)
	switch {
	case err != nil && l.format != formatFacts && isNotThere(err) && hasGlob(param):
		return l.glob(param)
	case err != nil:
		return err
	case l.format == formatFacts && !info.IsDir():
		return errNoDirectory
	case l.options.has("d") || !info.IsDir():
		l.sources = []source{{entry: entry{shown: cmp.Or(param, "."), info: info}}}
		return nil
	}
	in := source{in: l.view}
	if l.format == formatNames && param != "." { // RFC 1123 section 4.1.2.7: a client can give each name to RETR
		in.shown = param
	}
	l.sources = []source{in}
	names, err := l.client.openNames(l.view) // a refusal comes before the data connection is used
	if err == nil {
		names.Close()
	}
	return err
}

// sort replaces the sources by all entries, in the order of the options.
func (l *listing) sort() error {
	var all []source
	if err := l.each(true, func(e entry) error {
		if len(all) == heldMax {
			return errTooManyToSort
		}
		all = append(all, source{entry: e})
		return l.hold(len(e.shown) + entryBytes)
	}); err != nil {
		return err
	}
	byTime, reverse := l.options.has("t"), l.options.has("r")
	slices.SortStableFunc(all, func(a, b source) int {
		if reverse {
			a, b = b, a
		}
		if byTime {
			return b.info.ModTime().Compare(a.info.ModTime())
		}
		return cmp.Compare(b.info.Size(), a.info.Size())
	})
	l.sources = all
	return nil
}

// each calls f with each entry, until an error. Entries of a directory have an info only if described is true.
func (l *listing) each(described bool, f func(entry) error) error {
	for _, s := range l.sources {
		if s.in == "" {
			if err := f(s.entry); err != nil {
				return err
			}
			continue
		}
		err := l.eachIn(s.in, s.pattern, func(names *names, name string) (err error) {
			e := entry{shown: joinShown(s.shown, name)}
			if described {
				if e.info, e.name, err = names.describe(name); e.info == nil {
					return err
				}
			}
			return f(e)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachIn calls f with each name in a directory that the pattern fits. With a pattern, a directory that the client cannot
// read has no names.
func (l *listing) eachIn(view, pattern string, f func(names *names, name string) error) error {
	if pattern != "" {
		if err := l.look(1); err != nil {
			return err
		}
	}
	names, err := l.client.openNames(view)
	if err != nil && pattern != "" {
		return l.client.unforeseen(err)
	}
	if err != nil {
		return err
	}
	defer names.Close()
	for {
		piece, err := names.next()
		if err == io.EOF {
			return nil
		}
		if err == nil && pattern != "" {
			err = l.look(len(piece))
		}
		if err != nil {
			return err
		}
		if l.options.has("r") {
			slices.Reverse(piece)
		}
		for _, name := range piece {
			if !l.fits(pattern, name) {
				continue
			}
			if err := f(names, name); err != nil {
				return err
			}
		}
	}
}

// lines calls f with each line, without its end, until an error.
func (l *listing) lines(f func(line string) error) error {
	now := l.client.server.clock.Now().Wall
	classify := l.options.has("F")
	return l.each(classify || l.format != formatNames, func(e entry) error {
		line := e.shown
		switch l.format {
		case formatLong:
			line = formatLine(e, now)
		case formatFacts:
			line = l.client.formatFacts(e)
		}
		if classify && e.info.IsDir() {
			line += "/"
		}
		return f(line)
	})
}

// WriteTo writes the lines, with their ends.
func (l *listing) WriteTo(w io.Writer) (n int64, err error) {
	b := bufio.NewWriterSize(w, 16<<10)
	err = l.lines(func(line string) error {
		m, err := b.WriteString(line + "\r\n")
		n += int64(m)
		return err
	})
	return n, cmp.Or(err, b.Flush())
}
