package driver

import (
	"context"
	"net/netip"
	"path"
	"strings"

	"github.com/ftplockd/ftplockd/internal/guessing"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// Account is a name that may log in, with its rights.
type Account struct {
	Name     string
	Home     string // the directory of the tree that is its "/"
	Start    string // the working directory after login, below Home
	Read     bool   // download
	Write    bool   // change files
	Chmod    bool   // SITE CHMOD
	Admin    bool   // may break locks
	MaxLocks int    // bounds the locks that it holds; 0: no bound
}

// inTree returns the path in the tree of a path that the account sees.
func (a Account) inTree(view string) string {
	if a.Home == "" || a.Home == "/" {
		return view
	}
	return path.Join(a.Home, path.Clean("/"+view))
}

// inView returns the path that the account sees of a name in the tree; false if the name is outside of its home.
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

// Attempt is one try to log in.
type Attempt struct {
	Name, Password string
	From           netip.Addr
	Gone           func() bool // reports whether the client has hung up
}

// ErrLogin is the error for a wrong password, an unknown name, or an address that the account may not log in from.
var ErrLogin = guessing.ErrWrong

// Accounts checks logins.
type Accounts interface {
	// Authenticate returns the account if the password is right and the account may log in from the address, else ErrLogin. It
	// takes the same time for an unknown name. It may wait for its turn to compute a slow hash, until ctx ends.
	// After any other error the password was not checked.
	Authenticate(context.Context, Attempt) (Account, error)
}
