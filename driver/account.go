package driver

import (
	"context"
	"net/netip"
	"path"
	"strings"

	"github.com/ftplockd/ftplockd/internal/guessing"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// Account is a name that may log in, and what it may do.
type Account struct {
	Name     string
	Home     string // the directory of the tree that it sees as "/"
	Start    string // where it is after login, as it sees it
	Read     bool   // download
	Write    bool   // change files
	Chmod    bool   // SITE CHMOD
	Admin    bool   // may break locks
	MaxLocks int    // how many locks it may hold; 0: any number
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

// Attempt is one try to log in, and what is known of its client.
type Attempt struct {
	Name, Password string
	From           netip.Addr
	Failures       int         // of late, from there: the fewest are served first
	Gone           func() bool // the client has hung up
}

// ErrLogin is what Accounts says of a wrong password, an unknown name, or an address that the account may not come from.
var ErrLogin = guessing.ErrWrong

// Accounts checks logins.
type Accounts interface {
	// Authenticate returns the account if the password is right and the account may come from there, else ErrLogin. It
	// takes the same time for a name that does not exist. It may wait for its turn to compute a slow hash, until ctx ends.
	// Any other error says that the password was not looked at.
	Authenticate(context.Context, Attempt) (Account, error)
}
