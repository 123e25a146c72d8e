package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/spf13/cobra"
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
			if c.Name() != "cluster" { // docs/cluster.md installs the servers without the package
				add(c)
			}
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
