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
	var reason, tokenText string
	cmd := &cobra.Command{
		Use:   "break NAME",
		Short: "Take a lock away from its holder",
		Long: `Break ends a lock. The holder's next RMD gets "taken away 12s ago: broken by administrator, REASON". NAME is the path in the
served tree, such as /locks/demo. With --token, break ends the lock only if it still has that token; "ftplockd locks" prints it.
Without --token, break ends the present hold (the first of several holds of a shared lock). On a terminal it first prints the
holder and asks for a confirmation.`,
		Example: "  ftplockd break /phone_lock --reason 'the scanner hangs'",
		Args:    oneArgument("NAME", "ftplockd break /locks/demo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := lockName(args[0])
			if err != nil {
				return err
			}
			var token uint64
			if cmd.Flags().Changed("token") {
				token, err = parseToken(tokenText)
			} else {
				token, err = options.tokenToBreak(cmd, name)
			}
			if err != nil {
				return err
			}
			return options.change(cmd, "/break", url.Values{"name": {name}, "token": {fmt.Sprint(token)}, "reason": {reason}}, "broken")
		},
	}
	options.addStateFlags(cmd)
	cmd.Flags().StringVar(&tokenText, "token", "", "end the lock only if it has this `TOKEN`")
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`: the holder and the history get this text")
	return cmd
}

// parseToken reads a token, a decimal number above 0.
func parseToken(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, server.UsageError{Err: fmt.Errorf("--token %q is no token: \"ftplockd locks\" prints the token of each lock", text)}
	}
	return n, nil
}

// tokenToBreak returns the token of a lock's holder. On a terminal it requires a confirmation.
func (o *serveOptions) tokenToBreak(cmd *cobra.Command, name string) (uint64, error) {
	locks, err := get[[]status.Lock](o, cmd, "/locks")
	if err != nil {
		return 0, err
	}
	encoded := (&url.URL{Path: name}).EscapedPath()
	i := slices.IndexFunc(locks, func(l status.Lock) bool { return l.Name == name || l.NameEncoded != "" && l.NameEncoded == encoded })
	if i < 0 {
		return 0, o.withServer(func() error { return fmt.Errorf("%s is %w%s", printable(name), lock.ErrNotHeld, nearest(name, locks)) })
	}
	l := locks[i]
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return l.Token, nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is held by %s for %s, token %d. Take it away? [y/N] ", printable(name), l.Owner(), inSeconds(l.Age), l.Token)
	answer, _ := bufio.NewReader(in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return 0, errors.New("nothing was changed")
	}
	return l.Token, nil
}

// nearest returns the end of an error about a name of which no lock is held: the held lock with the most similar name, if it differs in two bytes at
// most.
func nearest(name string, locks []status.Lock) string {
	best, hint := 3, ""
	for _, l := range locks {
		if d := distance(name, l.Name); d < best {
			best, hint = d, fmt.Sprintf("; did you mean %s?", printable(l.Name))
		}
	}
	return hint
}

// distance returns the least number of inserted, removed and replaced bytes that makes b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // row[j]: from the part of a that was read to b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal, row[j+1] = row[j+1], min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// newKickCommand returns the command that ends a session.
func newKickCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "kick ID",
		Short: "End a session",
		Long: `Kick ends a session. Its client gets the reply 421, the server discards its uploads, and its locks stay or end as at each
disconnect. "ftplockd sessions" prints the ID, such as 3-17.`,
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
