package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/config"
)

// TestInitHasTheRulesOfTheReadme compares the rules of "ftplockd init" with those of the configuration in README.md.
func TestInitHasTheRulesOfTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```toml\n")
	shown, _, _ := strings.Cut(rest, "```")
	shown = strings.Replace(shown, "$argon2id$v=19$m=19456,t=2,p=1$...", "$2y$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234", 1)
	want, err := config.Parse([]byte(shown), "README.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "f")
	if _, err := (quickstart{account: "a", listen: ":21", root: "/srv", state: "/state"}).write(file); err != nil {
		t.Fatal(err)
	}
	if got, err := config.Load(file); err != nil || !reflect.DeepEqual(got.Rules, want.Rules) {
		t.Errorf("%v: %+v, want %+v", err, got, want.Rules)
	}
}
