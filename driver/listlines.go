package driver

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// sixMonths is the age at which ls shows the year in place of the time of day.
const sixMonths = 183 * 24 * time.Hour

// formatLine formats an entry as `ls -l` does. Times are in UTC, as in MDTM (RFC 3659 section 2.3).
func formatLine(e entry, now time.Time) string {
	modified := e.info.ModTime().UTC()
	stamp := modified.Format("Jan _2 15:04")
	if age := now.Sub(modified); age > sixMonths || age < -time.Hour {
		stamp = modified.Format("Jan _2  2006")
	}
	of, _ := e.info.(virtual)
	owner := strings.ReplaceAll(cmp.Or(of.owner, "ftp"), " ", "_") // clients split lines at spaces
	line := fmt.Sprintf("%s %4d %-8s %-8s %12d %s %s", modeString(e.info.Mode()), links(e.info), owner, "ftp", e.info.Size(), stamp, e.shown)
	if l, ok := e.info.(link); ok && l.target != "" {
		line += " -> " + l.target
	}
	return line
}

// fileTypes have the first letter in the lines of ls, which differs from Go's for links and devices. The first match counts.
var fileTypes = []struct {
	bit    fs.FileMode
	letter byte
}{
	{fs.ModeDir, 'd'}, {fs.ModeSymlink, 'l'}, {fs.ModeNamedPipe, 'p'}, {fs.ModeSocket, 's'}, {fs.ModeCharDevice, 'c'}, {fs.ModeDevice, 'b'},
}

// modeString returns the first ten characters of a line of ls.
func modeString(m fs.FileMode) string {
	s := []byte(m.Perm().String())
	for _, t := range fileTypes {
		if m&t.bit != 0 {
			s[0] = t.letter
			break
		}
	}
	return string(s)
}

// details is the type that FileInfo.Sys of a file in the served tree returns.
type details interface {
	Identity() (inode uint64, birth int64)
	Device() uint64
	Links() uint64
}

// links returns the number of hard links. Without a count from the file system it is that of an empty directory or of a file.
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

// formatFacts formats an entry of MLSD or MLST (RFC 3659 section 7.5), with the facts that the client selected.
func (c *client) formatFacts(e entry) string {
	var b strings.Builder
	add := func(name, value string) {
		if slices.Contains(c.conn.Facts(), name) {
			b.WriteString(name + "=" + value + ";")
		}
	}
	add("type", typeFact(e.info.Mode()))
	if e.info.Mode().IsRegular() { // the size of a link is not that of RETR
		add("size", fmt.Sprint(e.info.Size()))
	}
	add("modify", e.info.ModTime().UTC().Format(timeValue))
	if of, ok := e.info.Sys().(details); ok {
		if inode, _ := of.Identity(); inode != 0 {
			add("unique", fmt.Sprintf("%xg%x", of.Device(), inode))
		}
	}
	add("unix.mode", fmt.Sprintf("0%03o", e.info.Mode().Perm()))
	return b.String() + " " + e.shown
}

func typeFact(m fs.FileMode) string {
	switch m.Type() {
	case 0:
		return "file"
	case fs.ModeDir:
		return "dir"
	case fs.ModeSymlink:
		return "OS.unix=symlink"
	}
	return "OS.unix=special"
}
