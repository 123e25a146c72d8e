package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/server"
	"github.com/ftplockd/ftplockd/internal/status"
)

// newBreakCommand returns the command that takes a lock away from its holder.
func newBreakCommand() *cobra.Command {
	var options serveOptions
	var reason string
	var token tokenFlag
	cmd := &cobra.Command{
		Use:   "break NAME",
		Short: "Take a lock away from its holder",
		Long: `Break ends a lock. The reply to the holder's next RMD is "taken away 12s ago: broken by
administrator, REASON". NAME is the path in the served tree, such as /locks/demo. With --token, the lock ends only if it is
still held with that token, which "ftplockd locks" prints. Without --token, break ends the hold of the current holder (the first of
several holders of a shared lock). On a terminal it names that holder and asks for a confirmation.`,
		Example: "  ftplockd break /phone_lock --reason 'the scanner hangs'",
		Args:    oneArgument("NAME", "ftplockd break /locks/demo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := lockName(args[0])
			if err != nil {
				return err
			}
			if token == 0 {
				if token, err = options.tokenToBreak(cmd, name); err != nil {
					return err
				}
			}
			return options.change(cmd, "/break", url.Values{"name": {name}, "token": {token.String()}, "reason": {reason}}, "broken")
		},
	}
	options.addStateFlags(cmd)
	cmd.Flags().Var(&token, "token", "the `TOKEN` of the hold to end")
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for the holder and for the history")
	return cmd
}

// tokenFlag is a token, a decimal number above 0; 0 if the flag is not given.
type tokenFlag uint64

func (t *tokenFlag) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return errors.New("is no token: \"ftplockd locks\" prints the token of each lock")
	}
	*t = tokenFlag(n)
	return nil
}

func (t *tokenFlag) Type() string { return "TOKEN" }

func (t *tokenFlag) String() string {
	if *t == 0 {
		return "" // the help then shows no default
	}
	return strconv.FormatUint(uint64(*t), 10)
}

// tokenToBreak returns the token of a lock's holder. On a terminal it asks for a confirmation.
func (o *serveOptions) tokenToBreak(cmd *cobra.Command, name string) (tokenFlag, error) {
	locks, err := get[[]status.Lock](o, cmd, "/locks")
	if err != nil {
		return 0, err
	}
	encoded := (&url.URL{Path: name}).EscapedPath()
	i := slices.IndexFunc(locks, func(l status.Lock) bool { return l.Name == name || l.NameEncoded != "" && l.NameEncoded == encoded })
	if i < 0 {
		return 0, o.found(func() error { return fmt.Errorf("%s is %w", printable(name), lock.ErrNotHeld) })
	}
	l := locks[i]
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return tokenFlag(l.Token), nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is held by %s for %s, token %d. Take it away? [y/N] ", printable(name), l.Owner(), inSeconds(l.Age), l.Token)
	answer, _ := bufio.NewReader(in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return 0, errors.New("nothing was changed")
	}
	return tokenFlag(l.Token), nil
}

// newKickCommand returns the command that ends a session.
func newKickCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "kick ID",
		Short: "End a session",
		Long: `Kick ends a session: its client gets the reply 421, and its connection ends. Its uploads are discarded, and its
locks are treated as at every disconnect. "ftplockd sessions" prints the ID, such as 3-17.`,
		Example: "  ftplockd kick 3-17",
		Args:    oneArgument("ID", "ftplockd kick 3-17"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := lock.ParseSessionID(args[0]); err != nil {
				return server.UsageError{Err: err}
			}
			return options.change(cmd, "/kick", url.Values{"id": {args[0]}}, "kicked")
		},
	}
	options.addStateFlags(cmd)
	return cmd
}

// change sends a request that changes something, and prints a word when that is done.
func (o *serveOptions) change(cmd *cobra.Command, path string, values url.Values, done string) error {
	if _, err := o.ask(cmd, http.MethodPost, path+"?"+values.Encode()); err != nil {
		return err
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), done)
	return err
}

func oneArgument(what, example string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("give one %s: %s", what, example)
		}
		return nil
	}
}

// lockName checks the name of a lock or a file on the command line.
func lockName(text string) (string, error) {
	if !strings.HasPrefix(text, "/") || path.Clean(text) == "/" {
		return "", server.UsageError{Err: fmt.Errorf("%q is no lock's name; a name is a path such as /locks/demo", text)}
	}
	return path.Clean(text), nil
}
