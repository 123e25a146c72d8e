package driver

import (
	"bytes"
	"fmt"
	"io/fs"
	"sort"
	"strings"
	"syscall"
	"time"
)

// entry is one line of a listing.
type entry struct {
	name  string // what the client is shown, perhaps with a directory before it
	info  fs.FileInfo
	owner string // the holder's account for a lock and its notes; "ftp" otherwise
}

// shown is the entry of what is no note.
func shown(name string, info fs.FileInfo) entry {
	if l, ok := info.(lockInfo); ok {
		return entry{name, info, l.status.Holds[0].Owner.Account}
	}
	return entry{name, info, "ftp"}
}

// listOptions are the letters that a client gave behind LIST or NLST, as for ls.
// RFC 959 knows none; clients send them all the same, and what is not known is passed over.
type listOptions struct {
	all       bool // -a, -A: names that begin with a dot as well
	directory bool // -d: the directory itself
	classify  bool // -F: a slash behind directories
	byTime    bool // -t
	bySize    bool // -S
	reverse   bool // -r
}

// parseListArgument splits what stands behind LIST or NLST into options and path.
// "--" ends the options, so that a name may begin with a dash; exists says whether a whole
// argument names something, which it then means.
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

// arrange drops what the options hide and puts the rest in order.
func (o listOptions) arrange(entries []entry) []entry {
	shown := entries[:0]
	for _, e := range entries {
		if o.all || !strings.HasPrefix(e.info.Name(), ".") {
			shown = append(shown, e)
		}
	}
	less := func(a, b entry) bool { return a.name < b.name }
	switch {
	case o.byTime:
		less = func(a, b entry) bool { return a.info.ModTime().After(b.info.ModTime()) }
	case o.bySize:
		less = func(a, b entry) bool { return a.info.Size() > b.info.Size() }
	}
	sort.SliceStable(shown, func(i, j int) bool {
		if o.reverse {
			i, j = j, i
		}
		return less(shown[i], shown[j])
	})
	return shown
}

// sixMonths is when ls goes from the time of day to the year.
const sixMonths = 183 * 24 * time.Hour

// appendLong writes one line as `ls -l` does; times are in UTC, as MDTM's are (RFC 3659 section 2.3).
func appendLong(b *bytes.Buffer, e entry, now time.Time) {
	modified := e.info.ModTime().UTC()
	stamp := modified.Format("Jan _2 15:04")
	if age := now.Sub(modified); age > sixMonths || age < -time.Hour {
		stamp = modified.Format("Jan _2  2006")
	}
	fmt.Fprintf(b, "%s %4d %-8s %-8s %12d %s %s",
		modeString(e.info.Mode()), links(e.info), column(e.owner), "ftp", e.info.Size(), stamp, e.name)
}

// column is a word that takes one column, whatever is in it: clients split at spaces.
func column(word string) string { return strings.ReplaceAll(word, " ", "_") }

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

func links(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	if info.IsDir() {
		return 2
	}
	return 1
}

// fact is one of the facts of MLSD and MLST (RFC 3659 section 7.5).
type fact struct {
	name  string
	value func(e entry, access accessRights) string
}

// accessRights is what the asking account may do, for the perm fact.
type accessRights struct{ read, write bool }

// facts stand in the order in which they are sent. Their names are case-insensitive by
// RFC 3659 section 7.5; they are written in lower case because PHP programs look for `type`.
var facts = [...]fact{
	{"type", func(e entry, _ accessRights) string {
		switch {
		case e.info.IsDir():
			return "dir"
		case e.info.Mode().IsRegular():
			return "file"
		case e.info.Mode()&fs.ModeSymlink != 0:
			return "OS.unix=symlink"
		default:
			return "OS.unix=special"
		}
	}},
	{"size", func(e entry, _ accessRights) string {
		if e.info.IsDir() {
			return ""
		}
		return fmt.Sprint(e.info.Size())
	}},
	{"modify", func(e entry, _ accessRights) string { return e.info.ModTime().UTC().Format(timeValue) }},
	{"perm", func(e entry, a accessRights) string { return permFact(e.info.IsDir(), a) }},
	{"unique", func(e entry, _ accessRights) string {
		if st, ok := e.info.Sys().(*syscall.Stat_t); ok {
			return fmt.Sprintf("%xg%x", st.Dev, st.Ino)
		}
		return ""
	}},
	{"unix.mode", func(e entry, _ accessRights) string { return fmt.Sprintf("0%03o", e.info.Mode().Perm()) }},
}

// timeValue is the form of times in MDTM, MFMT and MLSx (RFC 3659 section 2.3).
const timeValue = "20060102150405"

// permFact is the value of the perm fact (RFC 3659 section 7.5.5).
func permFact(dir bool, a accessRights) string {
	var s string
	switch {
	case dir && a.write:
		s = "cdeflmp"
	case dir:
		s = "el"
	case a.write:
		s = "adfw"
	}
	if !dir && a.read {
		s += "r"
	}
	return s
}

// factSet says which facts a session asked for with OPTS MLST; the i-th bit stands for facts[i].
type factSet uint

const allFacts factSet = 1<<len(facts) - 1

// parseFacts reads the argument of OPTS MLST (RFC 3659 section 7.9): names it does not know are passed over.
func parseFacts(list string) factSet {
	var set factSet
	for want := range strings.SplitSeq(strings.ToLower(list), ";") {
		for i, f := range facts {
			if f.name == want {
				set |= 1 << i
			}
		}
	}
	return set
}

// String lists the names as the reply to OPTS MLST does: `type;size;`.
func (s factSet) String() string {
	var b strings.Builder
	for i, f := range facts {
		if s&(1<<i) != 0 {
			b.WriteString(f.name + ";")
		}
	}
	return b.String()
}

// feature is the line that FEAT shows (RFC 3659 section 7.8): the facts that are on carry a star.
func (s factSet) feature() string {
	var b strings.Builder
	b.WriteString("MLST ")
	for i, f := range facts {
		b.WriteString(f.name)
		if s&(1<<i) != 0 {
			b.WriteByte('*')
		}
		b.WriteByte(';')
	}
	return b.String()
}

// appendFacts writes one entry of MLSD or MLST without a line end.
func (s factSet) appendFacts(b *bytes.Buffer, e entry, a accessRights) {
	for i, f := range facts {
		if s&(1<<i) == 0 {
			continue
		}
		if v := f.value(e, a); v != "" {
			b.WriteString(f.name + "=" + v + ";")
		}
	}
	b.WriteString(" " + e.name)
}
