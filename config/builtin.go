package config

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The environment of the built-in account.
const (
	envUser     = "FTPLOCKD_USER"
	envPassword = "FTPLOCKD_PASSWORD"
)

// passwordFile is where, in the state directory, the generated password stands.
const passwordFile = "password"

// BuiltinAccount returns the account of a server whose configuration has none,
// and its password. Its name is FTPLOCKD_USER, else "ftp"; env is [os.Getenv].
//
// Its password is FTPLOCKD_PASSWORD, and then nothing is read or written; else
// the one in the file "password" of the state directory. If there is none yet
// one is generated (130 bits) and put there, for its owner alone to read, whole or
// not at all, and generated is true: the moment to tell the operator where it is.
// Of several servers that start at once, one makes it and all use it. A
// file that others may read is made the owner's alone; so is a state directory that is
// made here, while one that exists keeps its mode.
func BuiltinAccount(stateDir string, env func(string) string) (account Account, plain string, generated bool, err error) {
	name := env(envUser)
	if name == "" {
		name = "ftp"
	}
	var check checker
	if check.checkAccountName(envUser, name, 0); len(check.errs) > 0 {
		return Account{}, "", false, check.errs
	}
	if plain = env(envPassword); plain == "" {
		if plain, generated, err = keptPassword(stateDir); err != nil {
			return Account{}, "", false, fmt.Errorf("password of the built-in account: %w", err)
		}
	}
	hash, err := HashPassword(plain)
	if err != nil {
		return Account{}, "", false, fmt.Errorf("password of the built-in account: %w", err)
	}
	return DefaultAccount(name, hash), plain, generated, nil
}

// keptPassword returns the password in the state directory, making one if there is none.
func keptPassword(stateDir string) (plain string, generated bool, err error) {
	file := filepath.Join(stateDir, passwordFile)
	plain, err = readPassword(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return plain, false, err
	}
	if err := makeStateDir(stateDir); err != nil {
		return "", false, err
	}
	plain = rand.Text()
	err = createFile(file, plain+"\n")
	if errors.Is(err, fs.ErrExist) { // another server was quicker
		plain, err = readPassword(file)
		return plain, false, err
	}
	if err != nil {
		return "", false, err
	}
	return plain, true, nil
}

// makeStateDir makes the state directory for its owner alone. The directories
// above it are ordinary ones: the served tree may lie in them.
func makeStateDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// readPassword reads a password file and takes away everybody else's access to it.
func readPassword(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: is no regular file", file)
	}
	if info.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil {
			return "", err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", err
	}
	plain := strings.TrimRight(string(data), "\r\n")
	if plain == "" {
		return "", fmt.Errorf("%s: is empty; remove it to have a new password made", file)
	}
	return plain, nil
}

// createFile makes a file with that content, whole and synced, or leaves the
// one that exists and returns [fs.ErrExist]. A link is the one step that does so.
func createFile(file, content string) error {
	dir := filepath.Dir(file)
	temporary, err := os.CreateTemp(dir, ".password-*") // O_EXCL, mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.WriteString(content)
	if err == nil {
		err = temporary.Sync()
	}
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	if err := os.Link(temporary.Name(), file); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
