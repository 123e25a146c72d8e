package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/config"
)

// maxPassword limits the bytes of a password; no FTP command can be longer.
const maxPassword = 4096

// newPasswdCommand returns the command that makes password hashes.
func newPasswdCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "passwd",
		Short: "Make the hash of a password for an [[account]]",
		Long: `Passwd reads a password, on a terminal twice and without echo, and prints its hash for the key "password" of an [[account]].
If standard input is no terminal, the password is its only line. The hash is argon2id with the parameters that OWASP recommends.

Passwd takes no password from the command line, because other users of the machine can read that.`,
		Example: `  ftplockd passwd
  ftplockd passwd < password.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return errors.New("other users can see a password on the command line (ps, the shell's history): " +
					"type it at the prompt, or write it to standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			plain, err := askPassword(cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			hash, err := config.HashPassword(plain)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), hash)
			return err
		},
	}
}

// askPassword reads a password from a terminal, twice, or else the only line of in.
func askPassword(in io.Reader, prompt io.Writer) (string, error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return readLine(in)
	}
	fmt.Fprint(prompt, "Password: ")
	first, err := readHidden(file, prompt)
	if err != nil {
		return "", err
	}
	fmt.Fprint(prompt, "Repeat the password: ")
	second, err := readHidden(file, prompt)
	if err != nil {
		return "", err
	}
	if first != second {
		return "", errors.New("the two passwords differ")
	}
	return first, nil
}

// readLine returns the only line of in, without its end.
func readLine(in io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxPassword+1))
	if err != nil {
		return "", err
	}
	line := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case len(data) > maxPassword:
		return "", errors.New("the password is too long")
	case strings.Contains(line, "\n"):
		return "", errors.New("standard input has more than one line")
	}
	return line, nil
}

// readHidden reads a line from a terminal without echo. If a signal ends the program meanwhile, it restores the echo.
func readHidden(terminal *os.File, prompt io.Writer) (string, error) {
	state, err := term.GetState(int(terminal.Fd()))
	if err != nil {
		return "", err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	read, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-signals:
			_ = term.Restore(int(terminal.Fd()), state)
			fmt.Fprintln(prompt)
			os.Exit(exitFailure)
		case <-read:
		}
	}()
	line, err := term.ReadPassword(int(terminal.Fd()))
	signal.Stop(signals)
	close(read)
	<-watched
	fmt.Fprintln(prompt) // the terminal did not echo the end of the line
	return string(line), err
}
