package server

import (
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
)

// banner returns the addresses, the account, and example commands. It contains the password only if the server has generated it and standard
// output is a terminal.
func (s *server) banner(terminal bool) string {
	c, v := s.config, s.service.Load()
	if s.election != nil {
		return s.standbyBanner()
	}
	address := typed(v.ports[0].Addr())
	account := c.Accounts[0].Name
	login, hint := shellWord(account), ""
	var b strings.Builder
	fmt.Fprintf(&b, "ftplockd listens on %s\n", strings.Join(v.addresses(), ", "))
	fmt.Fprintf(&b, "serves %s; its own files are in %s\n", absolute(c.Root), absolute(c.State))
	if s.watched.page != nil {
		fmt.Fprintf(&b, "its page is at %s\n", s.watched.address())
	}
	fmt.Fprintf(&b, "account %s", account)
	switch {
	case s.plain == "": // without :PASSWORD, curl would read the next line as the password
		login += ":PASSWORD"
		hint = ", with the account's password for PASSWORD"
	case os.Getenv(config.EnvPassword) != "":
		fmt.Fprintf(&b, ", password as in %s", config.EnvPassword)
		login += `:"$` + config.EnvPassword + `"`
	case terminal:
		fmt.Fprintf(&b, ", password %s", s.plain)
		login += ":" + s.plain
	default:
		file := filepath.Join(absolute(c.State), config.PasswordFile)
		fmt.Fprintf(&b, ", password in %s", file)
		login += `:"$(cat '` + file + `')"`
	}
	name, ok := v.sampleLock(c.Accounts[0])
	if !ok {
		b.WriteString("\n\nThe [[lock]] rules of the configuration say which names are locks.\n\n")
		return b.String()
	}
	curl := "curl -sv"
	if c.TLS.Mode == config.TLSRequired { // -k: the certificate has a name, and not the address
		curl = "curl -skv --ssl-reqd"
	}
	fmt.Fprintf(&b, "\n\nTake a lock, see it refused, give it back%s:\n\n", hint)
	for _, command := range []string{"MKD", "MKD", "RMD"} {
		fmt.Fprintf(&b, "  %s -u %s -Q '%s %s' ftp://%s/ 2>&1 | grep %s\n", curl, login, command, name, address, path.Base(name))
	}
	b.WriteString("\n")
	return b.String()
}

// standbyBanner returns the banner of a server of several, which may have taken over already.
func (s *server) standbyBanner() string {
	c := s.config
	var b strings.Builder
	fmt.Fprintf(&b, "ftplockd is one of several servers with locks in etcd at %s\n", strings.Join(c.Etcd.Endpoints, ", "))
	fmt.Fprintf(&b, "when it is the active one it listens on %s, and serves %s; its own files are in %s\n",
		strings.Join(append(c.Listen[:len(c.Listen):len(c.Listen)], c.TLS.ImplicitListen...), ", "), absolute(c.Root), absolute(c.State))
	if s.watched.page != nil {
		fmt.Fprintf(&b, "its page is at %s\n", s.watched.address())
	}
	b.WriteString("\n")
	return b.String()
}

// sampleLock returns the name of a lock, as the account sees it; false: it found no name. It tries usual names first, and then names that it makes of
// the rules' globs.
func (v *service) sampleLock(a config.Account) (string, bool) {
	guess := strings.NewReplacer("**/", "", "**", "demo", "*", "demo", "?", "x")
	names := []string{path.Join(a.Home, "/locks/demo"), path.Join(a.Home, "/demo_lock"), path.Join(a.Home, "/demo.lock")}
	for _, r := range v.server.config.Rules {
		names = append(names, path.Join("/", guess.Replace(r.Match)))
	}
	home := strings.TrimSuffix(a.Home, "/") + "/"
	for _, name := range names {
		if _, ok := v.table.Rules().For(lock.Name(name)); !ok || !strings.HasPrefix(name, home) {
			continue
		}
		if info, err := v.tree.Stat(path.Dir(name)); err == nil && info.IsDir() {
			return "/" + strings.TrimPrefix(name, home), true
		}
	}
	return "", false
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

// typed returns an address at which a program on this machine reaches a listener.
func typed(a net.Addr) string {
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
