package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
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

// test runs the tests of a package that match run, or with "" all of them with -short. It replaces files, whose paths are below root, and
// does not change the tree. Programs that the tests build have the replaced files, too.
func (r runner) test(files map[string]string, pkg, run string) (result, error) {
	dir, err := os.MkdirTemp("", "guards-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := harness.WriteOverlay(r.root, dir, files)
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "test", "-json", "-vet=off", "-count=1", "-timeout="+r.timeout.String(), "-run="+run, "-short="+strconv.FormatBool(run == ""), "./"+pkg)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	cmd.WaitDelay = 10 * time.Second // a program that a test left may keep the output open
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, r.log
	err = cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		return "", err
	}
	return r.judge(out.Bytes(), strings.Count(run, "/"), err == nil)
}

// judge returns the outcome of a run from the output of "go test -json". Tests above the depth, such as those around a script, do not count.
func (r runner) judge(out []byte, depth int, passed bool) (result, error) {
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
		case event.Test == "" || strings.Count(event.Test, "/") < depth:
		case event.Action == "run":
			ran++
		case event.Action == "skip":
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
