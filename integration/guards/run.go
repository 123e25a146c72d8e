package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// A result is the outcome of a test run.
type result string

const (
	red     result = "red"
	green   result = "green"
	skipped result = "skipped"
	noBuild result = "does not build"
	noTest  result = "runs no test"
)

// A runner runs tests with replaced files.
type runner struct {
	root    string        // the directory of the module
	timeout time.Duration // of each run
	log     io.Writer     // the output of the tests
}

// test runs "go test" for one package with the replaced files, which it finds below root. The tree is not changed. Programs that the
// tests build have the replaced files, too.
func (r runner) test(files map[string]string, pkg string, args ...string) (result, error) {
	dir, err := os.MkdirTemp("", "guards-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := harness.WriteOverlay(r.root, dir, files)
	if err != nil {
		return "", err
	}
	args = append([]string{"test", "-json", "-vet=off", "-count=1", "-timeout=" + r.timeout.String()}, append(args, "./"+pkg)...)
	cmd := exec.Command("go", args...)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	cmd.WaitDelay = 10 * time.Second // a program that a test left may keep the output open
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, r.log
	err = cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		return "", err
	}
	return r.judge(out.Bytes(), err == nil)
}

// judge returns the outcome of a run from the output of "go test -json".
func (r runner) judge(out []byte, passed bool) (result, error) {
	var ran, skips int
	broken := false
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var event struct{ Action, Test, Output, FailedBuild string }
		if err := dec.Decode(&event); err != nil {
			return "", fmt.Errorf("output of go test: %w", err)
		}
		fmt.Fprint(r.log, event.Output)
		switch {
		case event.Action == "build-fail" || event.FailedBuild != "":
			broken = true
		case event.Action == "run":
			ran++
		case event.Action == "skip" && event.Test != "":
			skips++
		}
	}
	switch {
	case broken:
		return noBuild, nil
	case ran == 0:
		return noTest, nil
	case !passed:
		return red, nil
	case skips > 0 && skips == ran:
		return skipped, nil
	}
	return green, nil
}
