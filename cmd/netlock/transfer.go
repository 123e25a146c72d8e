package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/locksmith"
)

// newPutCommand returns the command that uploads a file under a lock.
func newPutCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "put URL LOCAL REMOTE",
		Short: "upload a file under a lock",
		Long: `Put takes the lock, uploads the file and gives the lock back. Others see the old file or the new one: where
the server does not see to that by itself, the file gets a temporary name first. "-" is standard input.
REMOTE is absolute or relative to the directory that the lock's path is relative to.`,
		Example: `  netlock put ftp://bob@ftp.example.com/phone_lock phone.tsv data/phone.tsv
  sort phone.tsv | netlock put --timeout 1m ftp://bob@ftp.example.com/phone_lock - data/phone.tsv`,
		Args: threeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.put(cmd.Context(), args[0], args[1], args[2])
		},
	}
	s.lockFlags(cmd)
	return cmd
}

// newGetCommand returns the command that downloads a file under a lock.
func newGetCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get URL REMOTE LOCAL",
		Short: "download a file under a lock",
		Long: `Get takes the lock, downloads the file and gives the lock back. A LOCAL that is a directory gets a file of
the remote name. The local file is replaced when all of it has come and is on the disk; a download that was cut off, or whose lock was lost, changes nothing.
"-" is standard output, which may have got a part of the file when the status is not 0.`,
		Example: `  netlock get ftp://bob@ftp.example.com/phone_lock data/phone.tsv phone.tsv
  netlock get ftp://bob@ftp.example.com/phone_lock data/phone.tsv - | wc -l`,
		Args: threeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.get(cmd.Context(), args[0], args[1], args[2])
		},
	}
	s.lockFlags(cmd)
	return cmd
}

// threeNames refuses an empty name, too, which a script has from a variable that is not set.
func threeNames(cmd *cobra.Command, args []string) error {
	if slices.Contains(args, "") {
		return errors.New("a name is empty")
	}
	return cobra.ExactArgs(3)(cmd, args)
}

func (s *settings) put(ctx context.Context, arg, local, remote string) error {
	in, size, err := openSource(local)
	if err != nil {
		return fail(exitNoFile, "%w", err)
	}
	defer in.Close()
	return s.under(ctx, arg, "put "+remote, func(ctx context.Context, l *locksmith.Lock) error {
		return l.Put(ctx, remote, in, size)
	})
}

// openSource opens what is uploaded; a size below 0 is not known.
func openSource(local string) (*os.File, int64, error) {
	if local == "-" {
		return os.Stdin, -1, nil
	}
	f, err := os.Open(local)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, 0, errors.Join(err, f.Close())
	case info.IsDir():
		return nil, 0, errors.Join(fmt.Errorf("%s is a directory", local), f.Close())
	case !info.Mode().IsRegular():
		return f, -1, nil
	}
	return f, info.Size(), nil
}

func (s *settings) get(ctx context.Context, arg, remote, local string) error {
	if local == "-" {
		return s.under(ctx, arg, "get "+remote, func(ctx context.Context, l *locksmith.Lock) error {
			_, err := l.Get(ctx, remote, os.Stdout)
			return err
		})
	}
	d, err := newDownload(local, path.Base(remote))
	if err != nil {
		return fail(exitFailed, "%w", err)
	}
	defer d.discard()
	err = s.under(ctx, arg, "get "+remote, func(ctx context.Context, l *locksmith.Lock) error {
		_, err := l.Get(ctx, remote, d.file)
		return errors.Join(err, d.file.Sync())
	})
	if err != nil {
		return err
	}
	if err := d.publish(); err != nil {
		return fail(exitFailed, "%w", err)
	}
	return nil
}

// under does something under the lock of a target, or under that of the netlock that runs us. The loss of the lock is an error also if all went
// well otherwise.
func (s *settings) under(ctx context.Context, arg, what string, do func(context.Context, *locksmith.Lock) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	t, err := s.resolve(arg)
	if err != nil {
		return err
	}
	take := acquire
	if t.inside() {
		take = inherit
	}
	lock, err := take(ctx, t)
	if err != nil {
		return err
	}
	held, forget := context.WithCancelCause(ctx)
	defer context.AfterFunc(lock.Context(), func() { forget(context.Cause(lock.Context())) })()
	done := make(chan error, 1)
	go func() { done <- do(held, lock.Lock) }()
	select {
	case err = <-done:
	case <-held.Done():
		select { // a read from a pipe or a terminal may never return; it ends with the process
		case err = <-done:
		case <-time.After(breakOff):
			err = context.Cause(held)
		}
	}
	err = transferred(held, err, t, what)
	if rerr := lock.release(t); !errors.Is(err, locksmith.ErrLost) {
		err = errors.Join(err, rerr)
	}
	return err
}

// breakOff is how long a transfer has to end when its lock is lost, or after a signal.
const breakOff = 3 * time.Second

// inherit returns the lock of the netlock that runs us, if that still holds it.
func inherit(ctx context.Context, t *target) (*holding, error) {
	t.tell("%s: %s is held by the netlock that runs this", t.name, os.Getenv(pathVariable))
	t.connect.Nonce = os.Getenv(nonceVariable)
	c, err := locksmith.Dial(ctx, t.connect)
	if err != nil {
		return nil, classify(err, t)
	}
	token, _ := strconv.ParseUint(os.Getenv(tokenVariable), 10, 64) // of another server than ftplockd it is empty
	lock, err := c.Inherit(ctx, os.Getenv(pathVariable), token)
	if err != nil {
		_ = c.Close()
		return nil, classify(err, t)
	}
	return &holding{lock, c}, nil
}

// transferred is the status of a transfer that failed, unless that was for the lock or a signal.
func transferred(ctx context.Context, err error, t *target, what string) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return classify(context.Cause(ctx), t)
	case err == nil, errors.Is(err, locksmith.ErrLost), errors.Is(err, locksmith.ErrUnknown):
		return classify(err, t)
	}
	return fail(exitFailed, "%s: %s: %w", t.name, what, err)
}
