package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func mode(t *testing.T, file string) os.FileMode {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestBuiltinAccountWithAPasswordInTheEnvironmentWritesNoFile(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	a, plain, generated, err := BuiltinAccount(state, environment("FTPLOCKD_USER", "bob", "FTPLOCKD_PASSWORD", "secret"))
	if err != nil || a.Name != "bob" || plain != "secret" || generated {
		t.Error(a.Name, plain, generated, err)
	}
	if _, err := NewVerifier(1).Login(t.Context(), []Account{a}, Attempt{Name: "bob", Password: "secret"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Error("the state directory was made:", err)
	}
	c := Default()
	c.Accounts = []Account{a}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestBuiltinAccountKeepsItsGeneratedPassword(t *testing.T) {
	state := t.TempDir()
	file := filepath.Join(state, "password")
	a, first, generated, err := BuiltinAccount(state, environment())
	if err != nil || a.Name != "ftp" || len(first) < 26 || !generated {
		t.Fatal(a.Name, len(first), generated, err)
	}
	if entries, _ := os.ReadDir(state); len(entries) != 1 || mode(t, file) != 0o600 {
		t.Error("left over:", entries, mode(t, file))
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	a, again, generated, err := BuiltinAccount(state, environment())
	if err != nil || again != first || generated || mode(t, file) != 0o600 {
		t.Error(again == first, generated, err, mode(t, file))
	}
	if _, err := NewVerifier(1).Login(t.Context(), []Account{a}, Attempt{Name: "ftp", Password: first}); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Truncate(file, 0), os.Chmod(file, 0o644)); err != nil { // a killed start leaves an empty file
		t.Fatal(err)
	}
	if _, another, generated, err := BuiltinAccount(state, environment()); err != nil || !generated || len(another) < 26 || mode(t, file) != 0o600 {
		t.Error(generated, err, mode(t, file))
	}
	if err := os.WriteFile(file, []byte("secret\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, plain, generated, err := BuiltinAccount(state, environment()); err != nil || plain != "secret" || generated {
		t.Error(plain, generated, err)
	}
}

func TestBuiltinAccountRefuses(t *testing.T) {
	empty, directory := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(empty, "password"), []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(directory, "password"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(empty, "password")
	for name, c := range map[string]struct {
		state string
		env   func(string) string
		says  string
	}{
		"an empty password file":           {empty, environment(), "remove it"},
		"a directory for a file":           {directory, environment(), "not a regular file"},
		"a file for a directory":           {file, environment(), ""},
		"a file above the directory":       {filepath.Join(file, "state"), environment(), ""},
		"the name of the host's own locks": {t.TempDir(), environment("FTPLOCKD_USER", "host"), "FTPLOCKD_USER"},
		"a name with a line end":           {t.TempDir(), environment("FTPLOCKD_USER", "a\r\nb"), "FTPLOCKD_USER"},
		"a password with a line end":       {t.TempDir(), environment("FTPLOCKD_PASSWORD", "a\nb"), "line end"},
	} {
		_, plain, generated, err := BuiltinAccount(c.state, c.env)
		if err == nil || plain != "" || generated || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q %v %v", name, plain, generated, err)
		}
	}
	if mode(t, filepath.Join(directory, "password")) != 0o755 {
		t.Error("the mode of what is no password file was changed")
	}
}
