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

// formatLine writes one line as `ls -l` does; times are in UTC, as MDTM's are (RFC 3659 section 2.3).
func formatLine(e entry, now time.Time) string {
	modified := e.info.ModTime().UTC()
	stamp := modified.Format("Jan _2 15:04")
	if age := now.Sub(modified); age > sixMonths || age < -time.Hour {
		stamp = modified.Format("Jan _2  2006")
	}
	owner := strings.ReplaceAll(cmp.Or(ownerOf(e.info), "ftp"), " ", "_") // clients split at spaces
	return fmt.Sprintf("%s %4d %-8s %-8s %12d %s %s", modeString(e.info.Mode()), links(e.info), owner, "ftp", e.info.Size(), stamp, e.shown)
}

// fileTypes have the first letter in the lines of ls, which differs from Go's for links and devices. The first that fits counts.
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

// details are what the served tree reports of a file besides.
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
	add("type", typeFact(e.info.Mode()))
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
