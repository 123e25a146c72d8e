package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"
)

// passwordVariable is the variable with the password for a URL without one.
const passwordVariable = "NETLOCK_PASSWORD"

// findPassword finds the account and its password in the URL, in the environment or in ~/.netrc. Without any the login is anonymous.
func (t *target) findPassword() error {
	c := &t.connect
	if c.Password != "" {
		return nil
	}
	password, set := os.LookupEnv(passwordVariable)
	if set && c.User != "" {
		c.Password = password
		return nil
	}
	login, password, err := fromNetrc(t.host, c.User)
	switch {
	case err != nil:
		return err
	case login != "":
		c.User, c.Password = login, password
	case c.User != "":
		return fmt.Errorf("there is no password of %s: set %s, or write into ~/.netrc: machine %s login %[1]s password PASSWORD", c.User, passwordVariable, t.host)
	}
	return nil
}

// fromNetrc finds a host and an account ("": any) in the file of ftp(1): $NETRC, or ~/.netrc. login is "" if the file has no entry.
func fromNetrc(host, user string) (login, password string, err error) {
	name := os.Getenv("NETRC")
	if home, err := os.UserHomeDir(); name == "" && err == nil {
		name = filepath.Join(home, ".netrc")
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	login, password, err = searchNetrc(f, host, user)
	if info, serr := f.Stat(); err == nil && serr == nil && password != "" && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return "", "", fmt.Errorf("%s contains passwords and has mode %04o, so that others can read them: chmod 600 it", name, info.Mode().Perm())
	}
	return login, password, err
}

// cutWord returns the first word of a line without spaces in front, and the line after it. A word in double quotes may contain spaces; in it, a
// backslash quotes the next character, as in curl.
func cutWord(line string) (word, rest string) {
	if line[0] != '"' {
		end := strings.IndexFunc(line, unicode.IsSpace)
		if end < 0 {
			end = len(line)
		}
		return line[:end], strings.TrimSpace(line[end:])
	}
	var plain strings.Builder
	quoted := false
	for i, c := range []byte(line[1:]) {
		switch {
		case quoted:
			plain.WriteByte(c)
			quoted = false
		case c == '\\':
			quoted = true
		case c == '"':
			return plain.String(), strings.TrimSpace(line[i+2:])
		default:
			plain.WriteByte(c)
		}
	}
	return plain.String(), "" // without the second quote
}

// searchNetrc reads machine, default, login, password, account and macdef, as ftp(1) does. It returns the first entry that matches.
func searchNetrc(from io.Reader, host, user string) (login, password string, err error) {
	hostMatches, inMacro, key := false, false, ""
	complete := func() bool { return hostMatches && login != "" && (user == "" || login == user) }
	for lines := bufio.NewScanner(from); ; {
		if !lines.Scan() {
			if err := lines.Err(); err != nil || !complete() {
				return "", "", err
			}
			return login, password, nil
		}
		line := strings.TrimSpace(lines.Text())
		if inMacro = inMacro && line != ""; inMacro || strings.HasPrefix(line, "#") { // a macro ends with an empty line
			continue
		}
		for line != "" {
			var word string
			word, line = cutWord(line)
			switch {
			case key == "machine":
				hostMatches, key = word == host, ""
			case key == "login":
				login, key = word, ""
			case key == "password":
				password, key = word, ""
			case key != "":
				key = ""
			case word == "machine" || word == "default":
				if complete() {
					return login, password, nil
				}
				login, password, hostMatches = "", "", true
				if word == "machine" {
					key = word
				}
			default:
				inMacro = inMacro || word == "macdef"
				key = word
			}
		}
	}
}
