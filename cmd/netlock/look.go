package main

import (
	"context"
	"encoding/json"
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
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "info URL",
		Short: "print the holder of a lock",
		Long: `Info prints whether the lock is held and, on ftplockd, its holder and the time
until it expires. The exit status is 0 in both cases, and 73 if the server
reports that the name is no lock.

With --json it prints an object with name, held, holders and waiting (the length
of the queue). A holder has holder (account@address), note (absent: none),
token, age_seconds, expires_in_seconds (absent: never) and shared. On other
servers there are no holders.`,
		Example: `  netlock info ftp://bob@ftp.example.com/phone_lock`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.info(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	s.timeoutFlag(cmd)
	return cmd
}

func (s *settings) info(ctx context.Context, arg string, asJSON bool) error {
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
	if asJSON {
		err = json.NewEncoder(os.Stdout).Encode(newLockInfo(info))
	} else {
		_, err = io.WriteString(os.Stdout, describe(info))
	}
	if err != nil {
		return fail(exitFailed, "standard output: %w", err)
	}
	return nil
}

// lockInfo is the JSON of a lock. Its members have the names that "ftplockd locks --json" uses.
type lockInfo struct {
	Name    string       `json:"name"`
	Held    bool         `json:"held"`
	Holders []lockHolder `json:"holders"`
	Waiting int          `json:"waiting"`
}

type lockHolder struct {
	Holder    string  `json:"holder"` // account@address
	Note      string  `json:"note,omitempty"`
	Token     uint64  `json:"token"`
	Age       float64 `json:"age_seconds"`
	ExpiresIn float64 `json:"expires_in_seconds,omitempty"`
	Shared    bool    `json:"shared,omitempty"`
}

func newLockInfo(i locksmith.Status) lockInfo {
	l := lockInfo{Name: i.Path, Held: i.Held, Holders: []lockHolder{}, Waiting: i.Waiting}
	for _, h := range i.Holders {
		l.Holders = append(l.Holders, lockHolder{h.Owner, h.Note, h.Token, h.Held.Seconds(), h.Expires.Seconds(), h.Shared})
	}
	return l
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
		owner := h.Owner
		if h.Note != "" {
			owner += " (" + h.Note + ")"
		}
		fmt.Fprintf(&b, "%s is held by %s for %s, %s, token %d\n", name, oneLine(owner), h.Held.Round(time.Second), expires, h.Token)
	}
	if i.Waiting > 0 {
		fmt.Fprintf(&b, "%d waiting\n", i.Waiting)
	}
	return b.String()
}
