package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/locksmith"
)

// newInfoCommand returns the command that describes one lock.
func newInfoCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "info URL",
		Short: "print the holder of a lock",
		Long: `Info prints whether the lock is held. If the server reports them, it prints its holder and when it expires. The exit status
is 0 whether the lock is held or not. Programs read the facts of SITE LOCK INFO instead.`,
		Example: `  netlock info ftp://bob@ftp.example.com/phone_lock`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.info(cmd.Context(), args[0])
		},
	}
	s.timeoutFlag(cmd)
	return cmd
}

func (s *settings) info(ctx context.Context, arg string) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	t, err := s.resolve(arg)
	if err == nil {
		err = t.needLock()
	}
	if err != nil {
		return err
	}
	ctx, cancel := t.limit(ctx)
	defer cancel()
	c, err := locksmith.Dial(ctx, t.connect)
	if err != nil {
		return classify(err, t)
	}
	defer c.Close()
	info, err := c.Info(ctx, t.path)
	if err != nil {
		return classify(err, t)
	}
	_, err = io.WriteString(os.Stdout, sentence(info))
	return err
}

// sentence describes one lock.
func sentence(i locksmith.Info) string {
	var b strings.Builder
	name := oneLine(i.Path)
	switch {
	case !i.Held && i.Reply != "":
		fmt.Fprintf(&b, "%s is not held: the server replied %s\n", name, oneLine(i.Reply))
	case !i.Held:
		fmt.Fprintf(&b, "%s is free\n", name)
	case len(i.Holders) == 0 && i.Since.IsZero():
		fmt.Fprintf(&b, "%s is held\n", name)
	case len(i.Holders) == 0:
		fmt.Fprintf(&b, "%s is held since %s\n", name, i.Since.Local().Format(time.DateTime))
	}
	for _, h := range i.Holders {
		shared, expires := "", "never expires"
		if h.Shared {
			shared = " together with others"
		}
		if h.Expires > 0 {
			expires = "expires in " + words(h.Expires)
		}
		fmt.Fprintf(&b, "%s is held%s by %s for %s, %s, token %d\n", name, shared, oneLine(h.Owner), words(h.Held), expires, h.Token)
	}
	if i.Waiting > 0 {
		fmt.Fprintf(&b, "%d waiting\n", i.Waiting)
	}
	return b.String()
}
