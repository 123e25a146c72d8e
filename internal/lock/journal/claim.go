package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// elsewhere is a file in the state directory of a server that keeps its locks in another store.
const elsewhere = "elsewhere"

// Claim takes a state directory for a server that keeps its locks in another store. It is given back by Close, or by the kernel when
// the process ends. It refuses one with a journal, whose locks would be forgotten. It marks the directory: a server that is
// started there without that store by mistake refuses, instead of granting locks that others hold.
func Claim(state string) (io.Closer, error) {
	dir := stateDir(state)
	f, err := exclusive(dir.path("lock"))
	if err != nil {
		return nil, err
	}
	_, err = os.Lstat(dir.journal())
	switch {
	case err == nil:
		err = fmt.Errorf(`%s has locks from before [etcd]: "ftplockd migrate --to etcd" moves them; or move %s away`, dir, dir.journal())
	case errors.Is(err, fs.ErrNotExist):
		err = os.WriteFile(dir.path(elsewhere), nil, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// claimed returns an error if the directory was claimed.
func (d stateDir) claimed() error {
	if _, err := os.Lstat(d.path(elsewhere)); err != nil {
		return nil
	}
	return fmt.Errorf("the locks of %s are in another store: is the section [etcd] missing? If they are there no more, remove %s", d, d.path(elsewhere))
}
