package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/status"
)

// watchEvery is how often --watch looks.
const watchEvery = time.Second

// newLocksCommand returns the command that lists the locks of the running server.
func newLocksCommand() *cobra.Command {
	var options serveOptions
	var asJSON, watch bool
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "List the locks that are held",
		Long: `Locks lists the locks that are held: name, holder, address, session, age, when it expires, how many wait for
it, token. Of an automatic lock it lists how many changes its job has made, and the last file. A second table has the jobs that
automatic locks refuse, and why (with --json: in ftplockd status --json).
With --json there is one object for each; the keys keep their meaning from version to version. With --watch the list is
printed again whenever a lock was taken or ended or others wait, until interrupted; --json --watch prints one line each time.
If another server may have taken over meanwhile, nothing is listed, and the exit status is 69.`,
		Example: "  ftplockd locks\n  ftplockd locks --json --state /var/lib/ftplockd",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := showLocks
			if asJSON {
				show = showJSON(!watch)
			}
			if watch {
				return watchLocks(cmd, &options, show)
			}
			if err := options.show(cmd, "/locks", show); err != nil || asJSON {
				return err
			}
			return options.show(cmd, "/status", showRefused)
		},
	}
	options.addStateFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&watch, "watch", false, "print again when something changes")
	return cmd
}

// watchLocks shows the locks whenever another set of tokens stands, or others wait.
func watchLocks(cmd *cobra.Command, options *serveOptions, show func(io.Writer, []byte) error) error {
	ctx := cmd.Context()
	last := "none seen"
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		err := options.show(cmd, "/locks", func(w io.Writer, body []byte) error {
			var views []status.Lock
			if err := json.Unmarshal(body, &views); err != nil {
				return err
			}
			var key strings.Builder
			for _, v := range views {
				fmt.Fprintln(&key, v.Name, v.Token, v.Waiting)
			}
			if key.String() == last {
				return nil
			}
			last = key.String()
			return show(w, body)
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// show asks the running server for something and prints it.
func (o *serveOptions) show(cmd *cobra.Command, what string, print func(io.Writer, []byte) error) error {
	body, err := o.ask(cmd, http.MethodGet, what)
	if err != nil {
		return err
	}
	return print(cmd.OutOrStdout(), body)
}

// showLocks prints a table.
func showLocks(w io.Writer, body []byte) error {
	var views []status.Lock
	if err := json.Unmarshal(body, &views); err != nil {
		return err
	}
	var rows []string
	header, automatic := "NAME\tHOLDER\tADDRESS\tSESSION\tAGE\tEXPIRES IN\tWAITING\tTOKEN", slices.ContainsFunc(views, func(v status.Lock) bool { return v.Automatic })
	if automatic {
		header += "\tAUTOMATIC"
	}
	for _, v := range views {
		name := printable(v.Name)
		if v.NameEncoded != "" {
			name = v.NameEncoded
		}
		expires := "never"
		if !v.Expires.IsZero() {
			expires = inSeconds(v.ExpiresIn)
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d",
			name, v.Holder, dash(v.Address), dash(v.Session), inSeconds(v.Age), expires, v.Waiting, v.Token))
		if automatic {
			rows[len(rows)-1] += "\t" + changesOf(v)
		}
	}
	return printTable(w, header, rows, "no locks are held")
}

// printTable prints rows of columns below a header; none says that there are no rows.
func printTable(w io.Writer, header string, rows []string, none string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, none)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\n%s\n", header, strings.Join(rows, "\n"))
	return table.Flush()
}

// showJSON prints JSON, on several lines or on one.
func showJSON(indented bool) func(io.Writer, []byte) error {
	return func(w io.Writer, body []byte) error {
		if !indented {
			_, err := w.Write(append(bytes.TrimSpace(body), '\n'))
			return err
		}
		var b bytes.Buffer
		if err := json.Indent(&b, bytes.TrimSpace(body), "", "  "); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w, b.String())
		return err
	}
}

// newSessionsCommand returns the command that lists who is logged in.
func newSessionsCommand() *cobra.Command {
	var options serveOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "sessions",
		Short:   "List the sessions that are logged in",
		Long:    "Sessions lists the sessions that are logged in: id, account, address, since when, and how many locks each has acquired that stand.",
		Example: "  ftplockd sessions",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return options.show(cmd, "/sessions", showJSON(true))
			}
			return options.show(cmd, "/sessions", showSessions)
		},
	}
	options.addStateFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func showSessions(w io.Writer, body []byte) error {
	var views []status.Session
	if err := json.Unmarshal(body, &views); err != nil {
		return err
	}
	var rows []string
	for _, v := range views {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%d", v.ID, v.Account, v.Address, v.Opened.Format(time.RFC3339), v.Holds))
	}
	return printTable(w, "SESSION\tACCOUNT\tADDRESS\tSINCE\tLOCKS", rows, "no client is logged in")
}

// newBreakCommand returns the command that takes a lock away from its holder.
func newBreakCommand() *cobra.Command {
	var options serveOptions
	var reason string
	var token tokenFlag
	cmd := &cobra.Command{
		Use:   "break NAME",
		Short: "Take a lock away from its holder",
		Long: `Break ends a lock. The holder is told at its next RMD: "taken away 12s ago: broken by
administrator, REASON". NAME is the path in the served tree, such as /locks/demo. With --token, the lock ends only if it is
still held with that token, which "ftplockd locks" shows. Without, break looks who holds it (of several who share it, the
first), asks on a terminal whether that is meant, and ends that hold only.`,
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
			return options.tell(cmd, "/break", url.Values{"name": {name}, "token": {token.String()}, "reason": {reason}}, "broken")
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
		return errors.New("is no token: \"ftplockd locks\" shows the token of each lock")
	}
	*t = tokenFlag(n)
	return nil
}

func (t *tokenFlag) Type() string { return "TOKEN" }

func (t *tokenFlag) String() string {
	if *t == 0 {
		return "" // so that the help shows no default
	}
	return strconv.FormatUint(uint64(*t), 10)
}

// tokenToBreak looks who holds a lock and, on a terminal, asks whether that one is meant.
func (o *serveOptions) tokenToBreak(cmd *cobra.Command, name string) (tokenFlag, error) {
	body, err := o.ask(cmd, http.MethodGet, "/locks")
	if err != nil {
		return 0, err
	}
	var views []status.Lock
	if err := json.Unmarshal(body, &views); err != nil {
		return 0, err
	}
	encoded := (&url.URL{Path: name}).EscapedPath()
	i := slices.IndexFunc(views, func(v status.Lock) bool { return v.Name == name || v.NameEncoded != "" && v.NameEncoded == encoded })
	if i < 0 {
		return 0, o.found(func() error { return fmt.Errorf("%s is %w", printable(name), lock.ErrNotHeld) })
	}
	v := views[i]
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return tokenFlag(v.Token), nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is held by %s for %s, token %d. Take it away? [y/N] ", printable(name), v.Owner(), inSeconds(v.Age), v.Token)
	answer, _ := bufio.NewReader(in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return 0, errors.New("nothing was changed")
	}
	return tokenFlag(v.Token), nil
}

// newKickCommand returns the command that ends a session.
func newKickCommand() *cobra.Command {
	var options serveOptions
	cmd := &cobra.Command{
		Use:   "kick ID",
		Short: "End a session",
		Long: `Kick ends a session: its client is told 421 and disconnected, what it is uploading is discarded, and its
locks are treated as at every disconnect. ID is the one that "ftplockd sessions" shows, such as 3-17.`,
		Example: "  ftplockd kick 3-17",
		Args:    oneArgument("ID", "ftplockd kick 3-17"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := lock.ParseSessionID(args[0]); err != nil {
				return usageError{err}
			}
			return options.tell(cmd, "/kick", url.Values{"id": {args[0]}}, "kicked")
		},
	}
	options.addStateFlags(cmd)
	return cmd
}

// tell has the running server do something, and says that it was done.
func (o *serveOptions) tell(cmd *cobra.Command, what string, values url.Values, done string) error {
	if _, err := o.ask(cmd, http.MethodPost, what+"?"+values.Encode()); err != nil {
		return err
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), done)
	return err
}

func oneArgument(what, example string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("say one %s: %s", what, example)
		}
		return nil
	}
}

// lockName checks what a user gave as the name of a lock.
func lockName(text string) (string, error) {
	if !strings.HasPrefix(text, "/") || path.Clean(text) == "/" {
		return "", usageError{fmt.Errorf("%q is no lock's name; one looks like /locks/demo", text)}
	}
	return path.Clean(text), nil
}

// printable keeps off the terminal what moves the cursor or turns the direction of writing.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, s)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func inSeconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}
