package driver

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// format is how a listing is written.
type format uint8

const (
	formatLong  format = iota // LIST, STAT
	formatNames               // NLST
	formatFacts               // MLSD
)

// listing is what LIST, NLST, MLSD or STAT show. Some of the names are held at a time, and the lines are made as they are sent.
type listing struct {
	client  *client
	view    string
	format  format
	options listOptions
	held    []entry  // what is shown first: single names, or all if they are sorted by time or size
	sources []source // what is shown then
	looks   int      // how many names patterns have looked at: in a tree with links they could go in circles
	bytes   int64    // about how much is held, see hold
}

// source is a directory whose names are shown.
type source struct {
	view    string
	shown   string // what stands before each of its names
	pattern string // which of the names are shown; "": all
}

// entry is one line of a listing.
type entry struct {
	shown string // what the client is shown, perhaps with a directory before it
	info  fs.FileInfo
	name  lock.Name // of what info describes, for MLSD and MLST
}

// listing finds what a command shows of a path or, but for MLSD, a glob. A path that does not exist is an error; a
// glob that fits nothing is an empty listing.
func (c *client) listing(f format, param string) (*listing, error) {
	l := &listing{client: c, format: f, options: listOptions{all: true}}
	if f != formatFacts {
		l.options, param = c.parseListArgument(f, param)
	}
	if l.options.long {
		l.format = formatLong
	}
	l.view = c.abs(param)
	c.look(c.conn.Command(), l.view)
	err := l.find(param)
	if err == nil && (l.options.byTime || l.options.bySize) {
		err = l.order()
	}
	if err != nil {
		l.Close()
	}
	return l, err
}

const (
	// listingFree is how many bytes each listing may hold, and listingsMax how many all of them may hold together beyond that,
	// until their clients have read them.
	listingFree = 64 << 10
	listingsMax = 64 << 20
	// entryBytes is about what an entry takes beside its name.
	entryBytes = 512
)

var errManyListings = &refusal{code: 450, text: "too many long listings are being read: try again, or list without options and pattern", is: fs.ErrInvalid}

// hold counts bytes that are held until the client has read the listing. Close counts them out.
func (l *listing) hold(n int) error {
	before := max(l.bytes-listingFree, 0)
	l.bytes += int64(n)
	more := max(l.bytes-listingFree, 0) - before
	if l.client.server.listings.Add(more) > l.client.server.listingsMax && more > 0 {
		return errManyListings
	}
	return nil
}

func (l *listing) find(param string) error {
	c := l.client
	info, err := c.stat(l.view)
	switch {
	case err != nil && l.format != formatFacts && isNotThere(err) && hasGlob(param):
		return l.glob(param)
	case err != nil:
		return err
	case info.IsDir() && !l.options.directory:
		in := source{view: l.view}
		if l.format == formatNames && param != "" && param != "." { // RFC 1123 section 4.1.2.7: each name is to be good for RETR
			in.shown = param
		}
		l.sources = []source{in}
		names, err := c.openNames(l.view) // why it cannot be shown is said before the data connection is used
		if err == nil {
			names.Close()
		}
		return err
	case l.format == formatFacts:
		return errNotDirectoryArgument
	}
	l.held = []entry{{shown: cmp.Or(param, "."), info: info}}
	return nil
}

// errNotDirectoryArgument is 501 by RFC 3659 section 7.2.1.
var errNotDirectoryArgument = &refusal{code: 501, text: "is not a directory", is: fs.ErrInvalid}

var errTooManyToSort = &refusal{text: "too many names to sort by time or size", is: fs.ErrInvalid}

// order holds all entries, in the order that the options want.
func (l *listing) order() error {
	var all []entry
	reverse := l.options.reverse
	l.options.reverse = false
	err := l.each(true, func(e entry) error {
		if len(all) == heldMax {
			return errTooManyToSort
		}
		all = append(all, e)
		return l.hold(len(e.shown) + entryBytes)
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b entry) int {
		if l.options.byTime {
			return b.info.ModTime().Compare(a.info.ModTime())
		}
		return cmp.Compare(b.info.Size(), a.info.Size())
	})
	if reverse {
		slices.Reverse(all)
	}
	l.held, l.sources = all, nil
	return nil
}

// each calls f with each entry, and what it is if that is wanted, until an error. What has gone away meanwhile is left out.
func (l *listing) each(described bool, f func(e entry) error) error {
	for _, e := range l.held {
		if err := f(e); err != nil {
			return err
		}
	}
	for _, in := range l.sources {
		err := l.eachIn(in.view, in.pattern, func(names *names, name string) error {
			e := entry{shown: joinShown(in.shown, name)}
			if described {
				var err error
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

// eachIn calls f with each name in a directory that the pattern fits; "" fits all. Where a pattern is looked for, a directory that
// may not be read has no names.
func (l *listing) eachIn(view, pattern string, f func(names *names, name string) error) error {
	if pattern != "" {
		if err := l.look(1); err != nil {
			return err
		}
	}
	names, err := l.client.openNames(view)
	if err != nil {
		if pattern != "" {
			err = l.client.unforeseen(err)
		}
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
		if l.options.reverse {
			slices.Reverse(piece)
		}
		for _, name := range piece {
			if forgesLine(name) || !l.fits(pattern, name) {
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
	described := l.format != formatNames || l.options.classify
	return l.each(described, func(e entry) error {
		line := e.shown
		switch l.format {
		case formatLong:
			line = formatLine(e, now)
		case formatFacts:
			line = l.client.formatFacts(e)
		}
		if l.options.classify && e.info.IsDir() {
			line += "/"
		}
		return f(line)
	})
}

// WriteTo writes the lines, with their ends.
func (l *listing) WriteTo(w io.Writer) (n int64, err error) {
	b := bufio.NewWriterSize(w, 16<<10)
	err = l.lines(func(line string) error {
		m, err := b.WriteString(line)
		n += int64(m)
		if err != nil {
			return err
		}
		m, err = b.WriteString("\r\n")
		n += int64(m)
		return err
	})
	if err != nil {
		return n, err
	}
	return n, b.Flush()
}

// Close implements content. A second call does nothing.
func (l *listing) Close() error {
	l.client.server.listings.Add(-max(l.bytes-listingFree, 0))
	l.bytes = 0
	return nil
}

// listOptions are the letters that a client gave behind LIST or NLST, as for ls. RFC 959 knows none; clients send them
// all the same, and those that are not known are passed over.
type listOptions struct {
	all       bool // -a, -A: names that begin with a dot as well
	directory bool // -d: the directory itself
	long      bool // -l: NLST as LIST, as vsftpd has it
	classify  bool // -F: a slash behind directories
	byTime    bool // -t
	bySize    bool // -S
	reverse   bool // -r
}

// parseListArgument splits what stands behind LIST or NLST into options and path. "--" ends the options, so that a name
// may begin with a dash. For NLST a whole argument that names something means that: "mdelete -al" is NLST, and then DELE of all
// that is listed. LIST -al is what clients say to see the whole directory.
func (c *client) parseListArgument(f format, param string) (listOptions, string) {
	var o listOptions
	rest := strings.TrimLeft(param, " ")
	for strings.HasPrefix(rest, "-") && len(rest) > 1 {
		if _, err := c.stat(c.abs(rest)); err == nil && f == formatNames {
			break
		}
		word, after, _ := strings.Cut(rest, " ")
		rest = strings.TrimLeft(after, " ")
		if word == "--" {
			break
		}
		o.add(word[1:])
	}
	return o, rest
}

func (o *listOptions) add(letters string) {
	for _, l := range letters {
		switch l {
		case 'a', 'A':
			o.all = true
		case 'd':
			o.directory = true
		case 'l':
			o.long = true
		case 'F':
			o.classify = true
		case 't':
			o.byTime = true
		case 'S':
			o.bySize = true
		case 'r':
			o.reverse = true
		}
	}
}

// sixMonths is when ls goes from the time of day to the year.
const sixMonths = 183 * 24 * time.Hour

// formatLine writes one line as `ls -l` does; times are in UTC, as MDTM's are (RFC 3659 section 2.3).
func formatLine(e entry, now time.Time) string {
	modified := e.info.ModTime().UTC()
	stamp := modified.Format("Jan _2 15:04")
	if age := now.Sub(modified); age > sixMonths || age < -time.Hour {
		stamp = modified.Format("Jan _2  2006")
	}
	owner := strings.ReplaceAll(cmp.Or(ownerOf(e.info), "ftp"), " ", "_") // clients split at spaces
	return fmt.Sprintf("%s %4d %-8s %-8s %12d %s %s",
		modeString(e.info.Mode()), links(e.info), owner, "ftp", e.info.Size(), stamp, e.shown)
}

// modeString is the ten characters of ls; Go's own differ for links and devices.
func modeString(m fs.FileMode) string {
	s := []byte("-" + m.Perm().String()[1:])
	switch {
	case m.IsDir():
		s[0] = 'd'
	case m&fs.ModeSymlink != 0:
		s[0] = 'l'
	case m&fs.ModeNamedPipe != 0:
		s[0] = 'p'
	case m&fs.ModeSocket != 0:
		s[0] = 's'
	case m&fs.ModeCharDevice != 0:
		s[0] = 'c'
	case m&fs.ModeDevice != 0:
		s[0] = 'b'
	}
	return string(s)
}

// details is what the served tree tells of a file besides.
type details interface {
	Identity() (inode uint64, birth int64)
	Device() uint64
	Links() uint64
}

func links(info fs.FileInfo) uint64 {
	if of, ok := info.Sys().(details); ok {
		return of.Links()
	}
	if info.IsDir() {
		return 2
	}
	return 1
}

// timeValue is the form of times in MDTM, MFMT and MLSx (RFC 3659 section 2.3).
const timeValue = "20060102150405"

// formatFacts writes one entry of MLSD or MLST (RFC 3659 section 7.5), with the facts that the client wants.
func (c *client) formatFacts(e entry) string {
	want := c.conn.Facts()
	var b strings.Builder
	add := func(name, value string) {
		if slices.Contains(want, name) && value != "" {
			b.WriteString(name + "=" + value + ";")
		}
	}
	add("type", typeFact(e.info))
	if !e.info.IsDir() {
		add("size", fmt.Sprint(e.info.Size()))
	}
	add("modify", e.info.ModTime().UTC().Format(timeValue))
	if slices.Contains(want, "perm") {
		add("perm", c.permFact(e.name, e.info))
	}
	if of, ok := e.info.Sys().(details); ok {
		if inode, _ := of.Identity(); inode != 0 {
			add("unique", fmt.Sprintf("%xg%x", of.Device(), inode))
		}
	}
	add("unix.mode", fmt.Sprintf("0%03o", e.info.Mode().Perm()))
	return b.String() + " " + e.shown
}

func typeFact(info fs.FileInfo) string {
	switch {
	case info.IsDir():
		return "dir"
	case info.Mode().IsRegular():
		return "file"
	case info.Mode()&fs.ModeSymlink != 0:
		return "OS.unix=symlink"
	}
	return "OS.unix=special"
}
