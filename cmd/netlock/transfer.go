package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"

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
	return s.under(ctx, arg, "put "+remote, func(ctx context.Context, c carrier) error {
		var source io.Reader = in
		if size < 0 {
			source = readUntil(ctx, in)
		}
		return c.Put(ctx, remote, source, size)
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
		return s.under(ctx, arg, "get "+remote, func(ctx context.Context, c carrier) error {
			out, flush := writeUntil(ctx, os.Stdout)
			_, err := c.Get(ctx, remote, out)
			if werr := flush(); werr != nil {
				err = werr // which has ended the transfer
			}
			return err
		})
	}
	d, err := newDownload(local, path.Base(remote))
	if err != nil {
		return fail(exitFailed, "%w", err)
	}
	defer d.discard()
	err = s.under(ctx, arg, "get "+remote, func(ctx context.Context, c carrier) error {
		_, err := c.Get(ctx, remote, d.file)
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

// under does something under the lock of a target. That the lock was lost is an error also if all went well otherwise.
func (s *settings) under(ctx context.Context, arg, what string, do func(context.Context, carrier) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	t, err := s.resolve(arg)
	if err != nil {
		return err
	}
	if t.inside() { // the netlock that runs us ends us when the lock is lost
		t.tell("%s: %s is held by the netlock that runs this", t.name, os.Getenv(pathVariable))
		c, err := locksmith.Dial(ctx, t.connect)
		if err != nil {
			return classify(err, t)
		}
		defer c.Close()
		token, _ := strconv.ParseUint(os.Getenv(tokenVariable), 10, 64)
		if err := c.Join(ctx, os.Getenv(pathVariable), os.Getenv(nonceVariable), token); err != nil {
			return classify(err, t)
		}
		return transferred(ctx, do(ctx, c), t, what)
	}
	lock, err := acquire(ctx, t)
	if err != nil {
		return err
	}
	held, forget := context.WithCancelCause(ctx)
	defer context.AfterFunc(lock.Context(), func() { forget(context.Cause(lock.Context())) })()
	err = transferred(held, do(held, lock), t, what)
	if rerr := lock.release(t); !errors.Is(err, locksmith.ErrLost) {
		err = errors.Join(err, rerr)
	}
	return err
}

// carrier transfers files: a lock, or a connection that speaks for one.
type carrier interface {
	Put(ctx context.Context, name string, r io.Reader, size int64) error
	Get(ctx context.Context, name string, w io.Writer) (int64, error)
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
