package server

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/config"
)

// banner returns the addresses and the served directory, and for a server without a configuration file the account and a first command. It contains
// the password only if the server has generated it and standard output is a terminal.
func (s *server) banner(terminal bool) string {
	s.mu.Lock() // a reload may be under way
	defer s.mu.Unlock()
	c := s.config
	var b strings.Builder
	if s.election == nil {
		fmt.Fprintf(&b, "ftplockd listens on %s\n", strings.Join(s.service.Load().addresses(), ", "))
	} else {
		fmt.Fprintf(&b, "ftplockd has its locks in etcd at %s; while it is active, it listens on %s\n",
			strings.Join(c.Etcd.Endpoints, ", "), strings.Join(slices.Concat(c.Listen, c.TLS.ImplicitListen), ", "))
	}
	fmt.Fprintf(&b, "serves %s", absolute(c.Root))
	if s.sinks.page != nil {
		fmt.Fprintf(&b, "; its page is at %s", s.sinks.address())
	}
	b.WriteByte('\n')
	if s.builtinPassword != "" {
		login := s.showAccountLocked(&b, terminal)
		if s.options.ConfigFile == "" {
			fmt.Fprintf(&b, "run this twice to see a lock granted and refused; RMD instead of MKD releases it:\n"+
				"  curl -sv -u %s -Q 'MKD /locks/demo' ftp://%s/ 2>&1 | grep demo\n", login, localAddress(s.service.Load().ports[0].Addr()))
		}
	}
	return b.String() + "\n"
}

// showAccountLocked writes a line with the built-in account, and returns the account and the password as one word for a shell.
func (s *server) showAccountLocked(b *strings.Builder, terminal bool) (login string) {
	account := s.config.Accounts[0].Name
	file := filepath.Join(absolute(s.config.State), config.PasswordFile)
	login = shellWord(account)
	switch {
	case os.Getenv(config.EnvPassword) != "":
		fmt.Fprintf(b, "account %s, password as in %s\n", account, config.EnvPassword)
		return login + `:"$` + config.EnvPassword + `"`
	case terminal:
		fmt.Fprintf(b, "account %s, password %s\n", account, s.builtinPassword)
		return login + ":" + s.builtinPassword
	}
	fmt.Fprintf(b, "account %s, password in %s\n", account, file)
	return login + `:"$(cat ` + shellWord(file) + `)"`
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// shellWord returns a text as one word of a POSIX shell.
func shellWord(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.@", r)
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// localAddress returns an address at which a program on this machine reaches a listener.
func localAddress(a net.Addr) string {
	if host, port, err := net.SplitHostPort(a.String()); err == nil && net.ParseIP(host).IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return a.String()
}

// addresses returns the addresses of the listeners, with the port that the system chose for ":0".
func (v *service) addresses() []string {
	var all []string
	for _, l := range v.ports {
		all = append(all, l.Addr().String())
	}
	return all
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}
