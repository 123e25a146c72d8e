package files

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// SecondNames says where one file has two names in the tree, for people: where a part of it is mounted a second time, and which of
// the directories ignore case. Locks and what they protect go by names, so such a file is two for them. Mounts are known on
// Linux only, and directories that the process may not write into are passed over.
func (t *Tree) SecondNames(directories []string) (found []string) {
	for _, two := range t.mountedTwice() {
		found = append(found, fmt.Sprintf("%s and %s are the same directory, mounted twice", two[0], two[1]))
	}
	for _, dir := range slices.Compact(slices.Sorted(slices.Values(directories))) {
		if t.ignoresCase(dir) {
			found = append(found, fmt.Sprintf("%s ignores case: names that differ in it alone are one file", dir))
		}
	}
	return found
}

// ignoresCase finds out by a temporary file.
func (t *Tree) ignoresCase(dir string) bool {
	name, err := clean(dir)
	if err != nil {
		return false
	}
	u, err := t.Upload(join(name, prefix+newID()), UploadOptions{})
	if err != nil {
		return false
	}
	defer u.Discard()
	_, err = u.dir.lstat(strings.ToUpper(u.temp))
	return err == nil
}

// mounted is a mount that is seen in the tree, or the tree itself.
type mounted struct {
	device string
	sub    string // what of the file system is seen, as its own path
	at     string // where, as an FTP path
}

// twice returns the pairs of names that lead to one directory.
func twice(all []mounted) (pairs [][2]string) {
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.device != b.device {
				continue
			}
			if rest, ok := below(b.sub, a.sub); ok {
				pairs = append(pairs, [2]string{path.Join(a.at, rest), b.at})
			} else if rest, ok := below(a.sub, b.sub); ok {
				pairs = append(pairs, [2]string{a.at, path.Join(b.at, rest)})
			}
		}
	}
	return slices.DeleteFunc(pairs, func(p [2]string) bool { return p[0] == p[1] }) // mounted over itself
}

// below returns what must be added to a path of a directory to get to name, if that lies in it or is it.
func below(name, dir string) (rest string, ok bool) {
	if dir == "/" {
		return strings.TrimPrefix(name, "/"), true
	}
	if name == dir {
		return "", true
	}
	return strings.CutPrefix(name, dir+"/")
}
