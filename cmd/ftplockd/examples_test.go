package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/config"
)

// TestExamplesUseThePathsOfThePackage compares absolute paths of the configuration and the state in the help and in README.md with those of the package.
func TestExamplesUseThePathsOfThePackage(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"README.md": string(readme)}
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		texts[cmd.CommandPath()] = cmd.Long + "\n" + cmd.Example
		for _, c := range cmd.Commands() {
			add(c)
		}
	}
	add(newRootCommand())
	for where, text := range texts {
		for _, path := range regexp.MustCompile(`/(?:etc|var/lib)/ftplockd[\w./-]*\w`).FindAllString(text, -1) {
			if path != "/etc/ftplockd/ftplockd.toml" && path != "/var/lib/ftplockd/state" && path != "/var/lib/ftplockd/files" {
				t.Errorf("%s has %s, which the package does not have", where, path)
			}
		}
	}
}

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
