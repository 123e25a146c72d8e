package config

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The environment of the built-in account.
const (
	EnvUser     = "FTPLOCKD_USER"
	EnvPassword = "FTPLOCKD_PASSWORD"
)

// PasswordFile is where, in the state directory, the generated password stands.
const PasswordFile = "password"

// BuiltinAccount returns the account of a server whose configuration has none,
// and its password. Its name is FTPLOCKD_USER, else "ftp"; env is [os.Getenv].
//
// Its password is FTPLOCKD_PASSWORD, and then nothing is read or written; else
// the one in the file "password" of the state directory. If there is none yet
// one is generated (130 bits) and put there, for its owner alone to read, and generated
// is true: the moment to tell the operator where it is. Only the server that has the
// state directory may ask. A file that others may read is made the owner's alone.
func BuiltinAccount(stateDir string, env func(string) string) (account Account, plain string, generated bool, err error) {
	name := env(EnvUser)
	if name == "" {
		name = "ftp"
	}
	var check checker
	if check.checkAccountName(EnvUser, name, 0); len(check.errs) > 0 {
		return Account{}, "", false, check.errs
	}
	if plain = env(EnvPassword); plain == "" {
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
	file := filepath.Join(stateDir, PasswordFile)
	info, err := os.Stat(file)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return "", false, fmt.Errorf("%s: is no regular file", file)
	case err == nil && info.Size() > 0: // an empty one was left by a start that was killed
		plain, err = readPassword(file)
		return plain, false, err
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", false, err
	}
	plain = rand.Text()
	return plain, true, os.WriteFile(file, []byte(plain+"\n"), 0o600)
}

// readPassword reads a password file and takes away everybody else's access to it.
func readPassword(file string) (string, error) {
	if err := os.Chmod(file, 0o600); err != nil {
		return "", err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	plain := strings.TrimRight(string(data), "\r\n")
	if plain == "" {
		return "", fmt.Errorf("%s: is empty; remove it to have a new password made", file)
	}
	return plain, nil
}
