package driver

import (
	"context"
	"path"
	"strings"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// inTree returns the path in the tree of a path that an account with a home sees.
func inTree(home, view string) string {
	if home == "" || home == "/" {
		return view
	}
	return path.Join(home, path.Clean("/"+view))
}

// inView returns the path that an account with a home sees of a name in the tree; false if the name is outside of the home.
func inView(home string, n lock.Name) (string, bool) {
	top := lock.Name(path.Clean("/" + home))
	if top == "/" {
		return string(n), true
	}
	if !n.Within(top) {
		return "", false
	}
	return "/" + strings.TrimPrefix(strings.TrimPrefix(string(n), string(top)), "/"), true
}

// Accounts checks logins.
type Accounts interface {
	// Authenticate returns the account if the password is right and the account may log in from the address, else config.ErrLogin. It
	// takes the same time for an unknown name. It may wait for its turn to compute a slow hash, until ctx ends.
	// After any other error the password was not checked.
	Authenticate(context.Context, config.Attempt) (config.Account, error)
}
