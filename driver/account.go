package driver

import (
	"context"
	"net/netip"
	"path"
	"strings"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Account is a name that may log in, and what it may do.
type Account struct {
	Name     string
	Home     string // the directory of the tree that it sees as "/"
	Start    string // where it is after login, as it sees it
	Read     bool   // download
	Write    bool   // change files
	Networks []netip.Prefix
	Chmod    bool // SITE CHMOD
	Admin    bool // may break locks
}

// from reports whether the account may come from that address; no networks: from any.
func (a Account) from(addr netip.Addr) bool {
	for _, n := range a.Networks {
		if n.Contains(addr.Unmap()) {
			return true
		}
	}
	return len(a.Networks) == 0
}

// inTree turns a path as the account sees it into one of the tree.
func (a Account) inTree(view string) string {
	if a.Home == "" || a.Home == "/" {
		return view
	}
	return path.Join(a.Home, path.Clean("/"+view))
}

// inView turns a name of the tree into the path that the account sees; false if it sees it nowhere.
func (a Account) inView(n lock.Name) (string, bool) {
	home := lock.Name(path.Clean("/" + a.Home))
	if home == "/" {
		return string(n), true
	}
	if !n.Within(home) {
		return "", false
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(string(n), string(home)), "/"), true
}

// Accounts knows who may log in.
type Accounts interface {
	// Authenticate returns the account if the password is right. It takes the same time for a name
	// that does not exist. It may wait for its turn to compute a slow hash, until ctx ends.
	Authenticate(ctx context.Context, name, password string) (Account, bool)
}
