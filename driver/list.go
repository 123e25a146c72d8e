package driver

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"path"
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

// listing is what LIST, NLST, MLSD or STAT show. Its names are held; its lines are made as they are sent.
type listing struct {
	client  *client
	view    string
	format  format
	options listOptions
	entries []entry
}

// entry is one line of a listing.
type entry struct {
	shown string // what the client is shown, perhaps with a directory before it
	name  lock.Name
	info  fs.FileInfo // nil: not looked up yet
	owner string      // the holder's account for a lock; "": nobody's
}

// listing finds what a command shows of a path or, but for MLSD, a glob. A path that does not exist is an error; a
// glob that fits nothing is an empty listing.
func (c *client) listing(f format, param string) (*listing, error) {
	l := &listing{client: c, format: f, options: listOptions{all: true}}
	if f != formatFacts {
		l.options, param = parseListArgument(param, c.exists)
	}
	l.view = c.abs(param)
	err := l.find(param)
	l.arrange()
	return l, err
}

func (l *listing) find(param string) error {
	c := l.client
	info, err := c.stat(l.view)
	switch {
	case err != nil && l.format != formatFacts && isNotThere(err) && hasGlob(param):
		l.entries, err = c.glob(param, l.options.all)
		l.options.all = true // the pattern has chosen
		return err
	case err != nil:
		return err
	case info.IsDir() && !l.options.directory:
		l.entries, err = c.list(l.view)
		if l.format == formatNames && param != "" && param != "." { // RFC 1123 section 4.1.2.7: each name is to be good for RETR
			for i := range l.entries {
				l.entries[i].shown = joinShown(param, l.entries[i].shown)
			}
		}
		return err
	case l.format == formatFacts:
		return errNotDirectoryArgument
	}
	l.entries = []entry{entryOf(cmp.Or(param, "."), info)}
	l.options.all = true // it was named
	return nil
}

// errNotDirectoryArgument is 501 by RFC 3659 section 7.2.1.
var errNotDirectoryArgument = &refusal{code: 501, text: "is not a directory", is: fs.ErrInvalid}

// entryOf is the entry of something that was looked up.
func entryOf(shown string, info fs.FileInfo) entry {
	e := entry{shown: shown, info: info}
	if l, ok := info.(lockInfo); ok {
		e.owner = l.status.Holds[0].Owner.Account
	}
	return e
}

// arrange drops what the options hide and puts the rest in order.
func (l *listing) arrange() {
	o := l.options
	l.entries = slices.DeleteFunc(l.entries, func(e entry) bool {
		return !o.all && strings.HasPrefix(path.Base(e.shown), ".") ||
			strings.ContainsAny(e.shown, "\r\n") // a name that would forge another line
	})
	order := func(a, b entry) int { return strings.Compare(a.shown, b.shown) }
	if o.byTime || o.bySize {
		there := l.entries[:0]
		for _, e := range l.entries {
			if l.client.describe(&e) {
				there = append(there, e)
			}
		}
		l.entries = there
		order = func(a, b entry) int { return cmp.Compare(b.info.Size(), a.info.Size()) }
		if o.byTime {
			order = func(a, b entry) int { return b.info.ModTime().Compare(a.info.ModTime()) }
		}
	}
	slices.SortStableFunc(l.entries, order)
	if o.reverse {
		slices.Reverse(l.entries)
	}
}

// lines yields the lines, without their ends. What has gone away meanwhile is left out.
func (l *listing) lines(yield func(string) bool) {
	now := l.client.server.clock.Now().Wall
	for _, e := range l.entries {
		if l.format != formatNames || l.options.classify {
			if !l.client.describe(&e) {
				continue
			}
		}
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
		if !yield(line) {
			return
		}
	}
}

// WriteTo writes the lines, with their ends.
func (l *listing) WriteTo(w io.Writer) (int64, error) {
	b := bufio.NewWriterSize(w, 16<<10)
	var n int64
	for line := range l.lines {
		m, err := b.WriteString(line)
		n += int64(m)
		if err != nil {
			return n, err
		}
		_, _ = b.WriteString("\r\n") // an error stays
		n += 2
	}
	return n, b.Flush()
}

// Close implements content.
func (l *listing) Close() error { return nil }

// describe looks up what an entry is, links followed as far as they lead inside the tree, so that clients which know no
// links see files and directories. It reports false if it has gone away.
func (c *client) describe(e *entry) bool {
	if e.info != nil {
		return true
	}
	info, err := c.server.tree.Lstat(c.server.disk(e.name))
	if err != nil {
		return false
	}
	e.info = info
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err := c.server.tree.Stat(c.server.disk(e.name)); err == nil {
			e.info = target
		}
	}
	return true
}

// list returns what a directory holds, unsorted: files, locks without a directory, the status file.
func (c *client) list(view string) ([]entry, error) {
	n, err := c.follow(view)
	if err != nil {
		return nil, err
	}
	special := c.specials(view, n)
	names, err := c.namesIn(n)
	if err != nil && !c.table().Held(n) {
		return nil, err
	}
	entries := make([]entry, 0, len(names)+len(special))
	for _, name := range names {
		if _, ok := special[name]; !ok {
			entries = append(entries, entry{shown: name, name: lock.Name(path.Join(string(n), name))})
		}
	}
	for _, e := range special {
		entries = append(entries, e)
	}
	return entries, nil
}

func (c *client) namesIn(n lock.Name) ([]string, error) {
	dir, err := c.server.tree.Open(c.server.diskDir(n))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// specials are what a directory shows that is no file of the tree, by name.
func (c *client) specials(view string, n lock.Name) map[string]entry {
	all := make(map[string]entry)
	for _, s := range c.table().Children(n) {
		all[s.Name.Base()] = entryOf(s.Name.Base(), lockInfo{s})
	}
	if dir, base := path.Split(c.server.settings.Load().StatusFile); base != "" && path.Clean(dir) == view {
		all[base] = entryOf(base, c.server.statusInfo(c.account))
	}
	return all
}

// listOptions are the letters that a client gave behind LIST or NLST, as for ls. RFC 959 knows none; clients send them
// all the same, and those that are not known are passed over.
type listOptions struct {
	all       bool // -a, -A: names that begin with a dot as well
	directory bool // -d: the directory itself
	classify  bool // -F: a slash behind directories
	byTime    bool // -t
	bySize    bool // -S
	reverse   bool // -r
}

// parseListArgument splits what stands behind LIST or NLST into options and path. "--" ends the options, so that a name
// may begin with a dash; exists says whether a whole argument names something, which it then means.
func parseListArgument(param string, exists func(string) bool) (listOptions, string) {
	var o listOptions
	rest := strings.TrimLeft(param, " ")
	for strings.HasPrefix(rest, "-") && len(rest) > 1 {
		if exists(rest) {
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
	owner := strings.ReplaceAll(cmp.Or(e.owner, "ftp"), " ", "_") // clients split at spaces
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
	add("perm", c.permFact(e.info.IsDir()))
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

// permFact is the value of the perm fact (RFC 3659 section 7.5.5): what the account may do.
func (c *client) permFact(dir bool) string {
	var s string
	switch {
	case dir && c.account.Write:
		s = "cdeflmp"
	case dir:
		s = "el"
	case c.account.Write:
		s = "adfw"
	}
	if !dir && c.account.Read {
		s += "r"
	}
	return s
}
