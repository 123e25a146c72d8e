package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/locksmith"
)

// newWaitCommand returns the command that waits for a lock without taking it.
func newWaitCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "wait URL [DIRECTORY]",
		Short: "wait until a lock is free",
		Long: `Wait ends with status 0 when the lock is free, and so is every lock below it. It takes no lock. With a DIRECTORY it waits
until no lock is held below that: when all members of a group are done. After --timeout it exits with status 75.`,
		Example: `  netlock wait ftp://bob@ftp.example.com/phone_lock && echo nobody holds it
  netlock wait --timeout 1h ftp://bob@ftp.example.com/phone_lock /locks/nightly && ./report`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.look(cmd.Context(), args, func(ctx context.Context, c *locksmith.Client, t *target, path string) error {
				if len(args) == 2 {
					path = strings.TrimSuffix(path, "/") + "/"
				} else if err := t.needLock(); err != nil {
					return err
				}
				return s.wait(ctx, c, path, t)
			})
		},
	}
	s.timeoutFlag(cmd)
	return cmd
}

// wait waits until a lock is free. With --timeout 0 it looks once.
func (s *settings) wait(ctx context.Context, c *locksmith.Client, path string, t *target) error {
	if !s.try {
		return c.Wait(ctx, path)
	}
	held, err := c.Busy(ctx, path)
	if err == nil && held {
		err = fail(t.conflict, "%s: %s is held", t.name, path)
	}
	return err
}

// newListCommand returns the command that lists locks.
func newListCommand(s *settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list URL [PATH]",
		Short: "list a lock and those below it",
		Long: `List tells of the lock of a path, if it is held, and of all locks below it. The path is the second argument, or else that of
the URL. A server that is no ftplockd is asked for the directories there.`,
		Example: `  netlock list ftp://bob@ftp.example.com/phone_lock
  netlock list --json ftp://bob@ftp.example.com/phone_lock /locks`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.look(cmd.Context(), args, func(ctx context.Context, c *locksmith.Client, t *target, dir string) error {
				all, err := c.List(ctx, dir)
				if err != nil {
					return err
				}
				return show(os.Stdout, all, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON: a list of what \"netlock info --json\" shows")
	return cmd
}

// newInfoCommand returns the command that tells of one lock.
func newInfoCommand(s *settings) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "info URL",
		Short: "tell who holds a lock",
		Long: `Info tells whether the lock is held, and by whom and until when if the server can tell. The exit status is 0 whether
it is held or not.`,
		Example: `  netlock info ftp://bob@ftp.example.com/phone_lock
  netlock info --json ftp://bob@ftp.example.com/phone_lock | jq .held`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.look(cmd.Context(), args, func(ctx context.Context, c *locksmith.Client, t *target, lock string) error {
				if err := t.needLock(); err != nil {
					return err
				}
				info, err := c.Info(ctx, lock)
				if err != nil {
					return err
				}
				if asJSON {
					return encode(os.Stdout, viewOf(info))
				}
				_, err = fmt.Fprint(os.Stdout, sentence(info))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

// look does something with a connection that takes no lock. where is the second argument or the target's path.
func (s *settings) look(ctx context.Context, args []string, do func(ctx context.Context, c *locksmith.Client, t *target, where string) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	t, err := s.resolve(args[0])
	if err != nil {
		return err
	}
	where := t.path
	if len(args) == 2 {
		where = args[1]
	}
	if s.timeout.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, t.until, fail(exitHeld, "%s: not within the time of %s: %s", t.name, words(time.Duration(s.timeout.duration)), where))
		defer cancel()
	}
	c, err := locksmith.Dial(ctx, t.connect)
	if err == nil {
		err = errors.Join(do(ctx, c, t, where), c.Close())
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return classify(err, t)
}

// view is a lock as JSON. Times are RFC 3339, durations seconds.
type view struct {
	Path    string       `json:"path"`
	Held    bool         `json:"held"`
	NoLock  bool         `json:"no_lock,omitempty"` // no rule of the server makes it one
	Since   *time.Time   `json:"since,omitempty"`
	Waiting int          `json:"waiting"`
	Holders []holderView `json:"holders"`
}

// holderView is one who holds a lock; no expires_in_seconds: for ever.
type holderView struct {
	Owner   string  `json:"owner"`
	Held    float64 `json:"held_seconds"`
	Expires float64 `json:"expires_in_seconds,omitempty"`
	Shared  bool    `json:"shared"`
	Token   uint64  `json:"token,omitempty"`
}

func viewOf(i locksmith.Info) view {
	v := view{Path: i.Path, Held: i.Held, NoLock: i.None, Waiting: i.Waiting, Holders: []holderView{}}
	if !i.Since.IsZero() {
		v.Since = &i.Since
	}
	for _, h := range i.Holders {
		v.Holders = append(v.Holders, holderView{h.Owner, h.Held.Seconds(), h.Expires.Seconds(), h.Shared, h.Token})
	}
	return v
}

func encode(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(value)
}

// show lists locks for people or programs.
func show(w io.Writer, all []locksmith.Info, asJSON bool) error {
	if asJSON {
		views := make([]view, len(all))
		for i := range all {
			views[i] = viewOf(all[i])
		}
		return encode(w, views)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LOCK\tHOLDER\tHELD\tEXPIRES IN\tWAITING\tTOKEN")
	for _, i := range all {
		for _, h := range i.Holders {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\n", oneLine(i.Path), oneLine(h.Owner), words(h.Held), until(h.Expires), i.Waiting, h.Token)
		}
		if len(i.Holders) == 0 {
			fmt.Fprintf(t, "%s\t?\t%s\t?\t%d\t\n", oneLine(i.Path), since(i.Since), i.Waiting)
		}
	}
	return t.Flush()
}

// sentence tells of one lock for people.
func sentence(i locksmith.Info) string {
	var b strings.Builder
	name := oneLine(i.Path)
	switch {
	case i.None:
		fmt.Fprintf(&b, "%s is no lock: no rule of the server makes it one\n", name)
	case !i.Held:
		fmt.Fprintf(&b, "%s is free\n", name)
	case len(i.Holders) == 0 && i.Since.IsZero():
		fmt.Fprintf(&b, "%s is held\n", name)
	case len(i.Holders) == 0:
		fmt.Fprintf(&b, "%s is held since %s\n", name, i.Since.Local().Format(time.DateTime))
	}
	for _, h := range i.Holders {
		shared := ""
		if h.Shared {
			shared = " together with others"
		}
		fmt.Fprintf(&b, "%s is held%s by %s for %s, expires in %s, token %d\n", name, shared, oneLine(h.Owner), words(h.Held), until(h.Expires), h.Token)
	}
	if i.Waiting > 0 {
		fmt.Fprintf(&b, "%d waiting\n", i.Waiting)
	}
	return b.String()
}

func until(d time.Duration) string {
	if d == 0 {
		return "never"
	}
	return words(d)
}

func since(t time.Time) string {
	if t.IsZero() {
		return "?"
	}
	return words(time.Since(t))
}
