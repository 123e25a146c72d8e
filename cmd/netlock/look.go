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
		Long: `Info prints whether the lock is held and, on ftplockd, its holder and the time until it expires. The exit status is 0 in both
cases. Programs read the facts of SITE LOCK INFO instead.`,
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
	info, err := t.info(ctx)
	if err != nil {
		return err
	}
	_, err = io.WriteString(os.Stdout, describe(info))
	return err
}

// describe returns the text of "netlock info" about one lock.
func describe(i locksmith.Status) string {
	var b strings.Builder
	name := oneLine(i.Path)
	switch {
	case i.Held && len(i.Holders) == 0:
		fmt.Fprintf(&b, "%s is held\n", name)
	case !i.Held:
		fmt.Fprintf(&b, "%s is free\n", name)
	}
	for _, h := range i.Holders {
		expires := "never expires"
		if h.Expires > 0 {
			expires = "expires in " + h.Expires.Round(time.Second).String()
		}
		fmt.Fprintf(&b, "%s is held by %s for %s, %s, token %d\n", name, oneLine(h.Owner), h.Held.Round(time.Second), expires, h.Token)
	}
	if i.Waiting > 0 {
		fmt.Fprintf(&b, "%d waiting\n", i.Waiting)
	}
	return b.String()
}
