package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/term"
)

// passwordVariable is where a password comes from that no profile tells of.
const passwordVariable = "NETLOCK_PASSWORD"

// password finds out the password of a target. An anonymous login needs none.
func (t *target) password(ctx context.Context) (string, error) {
	switch s := t.secret; {
	case s.password != "", t.connect.User == "":
		return s.password, nil
	case s.file != "":
		return fromFile(inDir(t.dir, s.file))
	case s.env != "":
		if word, ok := os.LookupEnv(s.env); ok {
			return word, nil
		}
		return "", fmt.Errorf("the environment has no %s", s.env)
	case s.command != "":
		return fromCommand(ctx, s.command)
	}
	if word, ok := os.LookupEnv(passwordVariable); ok {
		return word, nil
	}
	if term.IsTerminal(int(os.Stdin.Fd())) {
		return ask(ctx, os.Stdin, os.Stderr, fmt.Sprintf("Password of %s at %s: ", t.user(), t.connect.Address))
	}
	if os.Getenv(pathVariable) != "" {
		return "", errors.New("netlock run passes NETLOCK_PASSWORD on only with --keep-password; say that, or write a profile for it")
	}
	return "", errors.New("set NETLOCK_PASSWORD, or write a profile with password_file, password_env, password_command or password")
}

func (t *target) isURL() bool { return isURL(t.name) }

func (p *profiles) dir() string { return filepath.Dir(p.file) }

// fromFile reads the first line of a file.
func fromFile(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	return firstLine(data, file)
}

// fromCommand runs a command by the shell; what it says on standard error is for the user.
func fromCommand(ctx context.Context, line string) (string, error) {
	argv := shell(line)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	cmd.WaitDelay = 100 * time.Millisecond // what the shell has started may have the pipe open
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("password_command: %w", err)
	}
	return firstLine(out, "password_command")
}

// shell runs a line by the system's shell.
func shell(line string) []string {
	if runtime.GOOS == "windows" {
		return []string{"cmd", "/c", line}
	}
	return []string{"/bin/sh", "-c", line}
}

func firstLine(data []byte, from string) (string, error) {
	line, _, _ := strings.Cut(string(bytes.TrimPrefix(data, []byte(byteOrderMark))), "\n")
	line = strings.TrimSuffix(line, "\r")
	if line == "" {
		return "", fmt.Errorf("%s has no password in its first line", from)
	}
	return line, nil
}

// ask reads a line from a terminal that does not show it. A signal that ends ctx meanwhile leaves a terminal that shows
// again what is typed; the reading ends with the process then.
func ask(ctx context.Context, terminal *os.File, prompt io.Writer, question string) (string, error) {
	fd := int(terminal.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	type answer struct {
		line []byte
		err  error
	}
	fmt.Fprint(prompt, question)
	answers := make(chan answer, 1)
	go func() {
		line, err := term.ReadPassword(fd)
		answers <- answer{line, err}
	}()
	defer fmt.Fprintln(prompt) // the line end that was not shown
	select {
	case a := <-answers:
		return string(a.line), a.err
	case <-ctx.Done():
		return "", errors.Join(context.Cause(ctx), term.Restore(fd, state))
	}
}
