package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandsFindTheInstalledConfiguration(t *testing.T) {
	r := startServer(t, "")
	before := installedConfig
	t.Cleanup(func() { installedConfig = before })
	t.Chdir(t.TempDir())
	expect := func(status int, says string, args ...string) {
		t.Helper()
		out, errs, got := runCommand(t.Context(), args...)
		if got != status || !strings.Contains(out+errs, says) {
			t.Errorf("%v: status %d\n%s%s", args, got, out, errs)
		}
	}
	commands := [][]string{
		{"locks"}, {"sessions"}, {"health"}, {"history", "/locks/a"}, {"leftovers"}, {"break", "/locks/a"}, {"kick", "3-1"}, {"cluster"},
		{"reload"},
	}

	installedConfig = r.file
	for _, args := range [][]string{{"explain", "/locks/a"}, {"history", "/locks/a"}} {
		expect(exitOK, "The configuration is "+r.file+".", args...)
		if _, errs, _ := runCommand(t.Context(), append(args, "--config", r.file)...); errs != "" {
			t.Errorf("%v: %s", args, errs)
		}
	}
	for i, says := range []string{"no locks are held", "no client is logged in", "ready", "has no events of /locks/a", "there are no leftovers"} {
		expect(exitOK, says, commands[i]...)
	}
	expect(exitOK, "reloaded", "reload")
	// Each failure names the configuration.
	expect(exitFailure, "The configuration is "+r.file+".", "break", "/locks/a")
	expect(exitUsage, "The configuration is "+r.file+".", "cluster")
	installedConfig = filepath.Join(r.dir, "other.toml")
	if err := os.WriteFile(installedConfig, fmt.Appendf(nil, "root = %q\nstate = %q\n", r.dir+"/none/files", r.dir+"/none/state"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range commands {
		if _, errs, status := runCommand(t.Context(), args...); status == exitOK || strings.Count(errs, "The configuration is "+installedConfig+".") != 1 {
			t.Errorf("%v: status %d\n%s", args, status, errs)
		}
	}
	expect(exitFailure, "The state directory is that of --state.", "locks", "--state", "none")
	expect(exitOK, "no locks are held", "locks", "--config", r.file)

	installedConfig = filepath.Join(r.dir, "none.toml")
	expect(exitFailure, "neither ftplockd-data/state nor "+installedConfig+" exists", "locks")

	installedConfig = r.file
	if err := os.MkdirAll("ftplockd-data/state", 0o700); err != nil {
		t.Fatal(err)
	}
	expect(exitFailure, "ftplockd-data/state exists here", "locks")
	expect(exitOK, "ftplockd-data/state exists here: the configuration is the built-in one", "explain", "/locks/a")
}
