package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/locksmith"
)

// profile is one table of the profiles' file: a lock, where it is and who asks for it. docs/netlock.md explains the keys.
type profile struct {
	address string
	user    string // "": anonymous
	secret  secret
	lock    string // absolute, or relative to dir
	dir     string // changed to after login
	tls     locksmith.TLSMode
	ca      string // a file with certificates; relative to the profiles' file
	active  bool
	timeout time.Duration // of each command; 0: 30 s
	wait    time.Duration // for the lock; 0: for ever
	poll    time.Duration
	renew   bool

	sharedUser   string // who asks with --shared; "": user does
	sharedSecret secret
}

// secret is where a password comes from: one of these, or none.
type secret struct {
	password string
	file     string
	env      string
	command  string
}

// fields are the keys of a profile, and what they set.
func (p *profile) fields() map[string]any {
	return map[string]any{
		"address": &p.address, "user": &p.user, "lock": &p.lock, "dir": &p.dir, "tls": &p.tls, "ca": &p.ca,
		"active": &p.active, "timeout": &p.timeout, "wait": &p.wait, "poll": &p.poll, "renew": &p.renew,
		"password": &p.secret.password, "password_file": &p.secret.file,
		"password_env": &p.secret.env, "password_command": &p.secret.command,
		"shared_user": &p.sharedUser, "shared_password": &p.sharedSecret.password, "shared_password_file": &p.sharedSecret.file,
		"shared_password_env": &p.sharedSecret.env, "shared_password_command": &p.sharedSecret.command,
	}
}

// set gives a field the value of a key, or says what would be right.
func set(field, value any) error {
	text, isText := value.(string)
	switch f := field.(type) {
	case *bool:
		yes, ok := value.(bool)
		if !ok {
			return errors.New("must be true or false")
		}
		*f = yes
		return nil
	case *string:
		if !isText {
			return errors.New("must be a string: write it in quotes")
		}
		if strings.ContainsAny(text, "\r\n\x00") {
			return errors.New("must be one line")
		}
		*f = text
		return nil
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if !isText || err != nil || d < 0 {
			return errors.New(`must be a duration such as "30s"`)
		}
		*f = d
		return nil
	case *locksmith.TLSMode:
		mode, ok := map[string]locksmith.TLSMode{
			"off": locksmith.TLSOff, "explicit": locksmith.TLSExplicit, "implicit": locksmith.TLSImplicit,
		}[text]
		if !ok {
			return errors.New(`must be "off", "explicit" or "implicit"`)
		}
		*f = mode
		return nil
	}
	return fmt.Errorf("no value fits %T", field)
}

// mistakes are what is wrong with the profile as a whole, by key.
func (p *profile) mistakes() map[string]string {
	wrong := make(map[string]string)
	if err := checkAddress(p.address); err != nil {
		wrong["address"] = err.Error()
	}
	if p.lock == "" {
		wrong["lock"] = `say which lock, such as lock = "phone_lock"`
	}
	for prefix, s := range map[string]secret{"": p.secret, "shared_": p.sharedSecret} {
		if ways := s.ways(); len(ways) > 1 {
			wrong[prefix+ways[1]] = "there is " + prefix + ways[0] + " already: only one of them can be right"
		} else if len(ways) == 1 && prefix+"user" == "user" && p.user == "" {
			wrong[ways[0]] = "a password without a user"
		} else if len(ways) == 1 && prefix != "" && p.sharedUser == "" {
			wrong[prefix+ways[0]] = "a password without a shared_user"
		}
	}
	return wrong
}

// ways are the keys by which a password is given.
func (s secret) ways() []string {
	var set []string
	for _, way := range []struct{ key, value string }{
		{"password", s.password}, {"password_file", s.file}, {"password_env", s.env}, {"password_command", s.command},
	} {
		if way.value != "" {
			set = append(set, way.key)
		}
	}
	return set
}

// checkAddress tells whether it is host or host:port.
func checkAddress(address string) error {
	if address == "" {
		return errors.New(`say where the server is, such as address = "ftp.example.com"`)
	}
	if strings.Contains(address, "/") || strings.ContainsAny(address, " \t") {
		return fmt.Errorf("%q must be a host or host:port", address)
	}
	if !strings.Contains(address, ":") || net.ParseIP(address) != nil {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("%q must be a host or host:port; an IPv6 address with a port stands in brackets", address)
	}
	return nil
}

// target makes what locksmith is asked for, but for the password. dir is where relative file names begin.
func (p *profile) target(name, dir string, shared bool) (*target, error) {
	s := locksmith.Server{
		Address: p.address, User: p.user, TLS: p.tls, Active: p.active, Timeout: p.timeout, Dir: p.dir,
	}
	t := &target{name: name, secret: p.secret, dir: dir, wait: p.wait}
	if shared && p.sharedUser != "" {
		s.User, t.secret = p.sharedUser, p.sharedSecret
	}
	if p.ca != "" {
		config, err := trust(inDir(dir, p.ca), p.address)
		if err != nil {
			return nil, fail(exitProfile, "%s: ca: %w", name, err)
		}
		s.Config = config
	}
	t.options = locksmith.Options{Server: s, Path: p.lock, Poll: p.poll, Renew: p.renew, Shared: shared}
	return t, nil
}

// trust is a TLS configuration that trusts the certificates of a file instead of the system's.
func trust(file, address string) (*tls.Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", file)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	return &tls.Config{RootCAs: pool, ServerName: host, MinVersion: tls.VersionTLS12}, nil
}

// inDir is where a file name of the profiles' file leads.
func inDir(dir, file string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// near returns the word that was most likely meant, or "".
func near(word string, words []string) string {
	slices.Sort(words)
	best, distance := "", len(word)/3+2
	for _, w := range words {
		if d := edits(strings.ToLower(word), w); d < distance && d < max(len(word), len(w)) {
			best, distance = w, d
		}
	}
	return best
}

// edits is how many letters must be added, left out or changed to get from a to b (Levenshtein).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// didYouMean is the end of a sentence about a word that is not known.
func didYouMean(word string, words []string) string {
	if w := near(word, words); w != "" {
		return "; did you mean " + w + "?"
	}
	return ""
}

// user names the account for people.
func (t *target) user() string { return cmp.Or(t.options.Server.User, "anonymous") }
