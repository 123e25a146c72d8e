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

// PasswordFile is the file in the state directory with the generated password.
const PasswordFile = "password"

// BuiltinAccount returns the account of a server whose configuration has none, and its password. Its name is FTPLOCKD_USER or "ftp"; env is
// [os.Getenv].
//
// Its password is FTPLOCKD_PASSWORD, or else that in the file "password" of the state directory. If there is no file, BuiltinAccount generates a
// password (130 bits), writes the file and returns generated. It sets the mode of the file to 0600. Only the server that holds the state directory
// may call it.
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
		if plain, generated, err = stateDirPassword(stateDir); err != nil {
			return Account{}, "", false, fmt.Errorf("password of the built-in account: %w", err)
		}
	}
	hash, err := HashPassword(plain)
	if err != nil {
		return Account{}, "", false, fmt.Errorf("password of the built-in account: %w", err)
	}
	return DefaultAccount(name, hash), plain, generated, nil
}

// stateDirPassword returns the password in the state directory, or generates one.
func stateDirPassword(stateDir string) (plain string, generated bool, err error) {
	file := filepath.Join(stateDir, PasswordFile)
	info, err := os.Stat(file)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return "", false, fmt.Errorf("%s: not a regular file", file)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", false, err
	case err == nil:
		if err := os.Chmod(file, 0o600); err != nil {
			return "", false, err
		}
	}
	if info != nil && info.Size() > 0 { // a start that was killed leaves an empty file
		plain, err = readPassword(file)
		return plain, false, err
	}
	plain = rand.Text()
	return plain, true, os.WriteFile(file, []byte(plain+"\n"), 0o600)
}

func readPassword(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	plain := strings.TrimRight(string(data), "\r\n")
	if plain == "" {
		return "", fmt.Errorf("%s: is empty; remove it, and the server generates a new password", file)
	}
	return plain, nil
}
