package files

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mountedTwice returns the pairs of names in the tree that mounts make of one directory. What cannot be read has none.
func (t *Tree) mountedTwice() [][2]string {
	root, err := filepath.Abs(t.root.Name())
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	return twice(mountsIn(root, string(table)))
}

// mountsIn returns what of a table of mounts, see proc_pid_mountinfo(5), is seen in the directory root: the file system of root
// first.
func mountsIn(root, table string) []mounted {
	var top mounted
	length := -1
	in := make(map[string]mounted) // by their place: a later one covers an earlier one
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		m := mounted{device: fields[2], sub: unescape(fields[3])}
		at := unescape(fields[4])
		if rest, ok := below(root, at); ok {
			if len(at) >= length {
				length = len(at)
				top = mounted{m.device, filepath.Join(m.sub, rest), "/"}
			}
		} else if rest, ok := below(at, root); ok {
			m.at = "/" + rest
			in[m.at] = m
		}
	}
	all := []mounted{top}
	for _, at := range slices.Sorted(maps.Keys(in)) {
		all = append(all, in[at])
	}
	return all
}

// unescape undoes the octal escapes of blanks and the like.
func unescape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if s[0] == '\\' && len(s) >= 4 {
			if n, err := strconv.ParseUint(s[1:4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				s = s[4:]
				continue
			}
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	return b.String()
}
