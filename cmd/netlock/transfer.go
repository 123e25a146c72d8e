package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ftplockd/ftplockd/locksmith"
)

// newPutCommand returns the command that uploads a file under a lock.
func newPutCommand(s *settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "put URL LOCAL REMOTE",
		Short: "upload a file under a lock",
		Long: `Put acquires the lock, uploads the file and releases the lock. Other clients see
the old file or the new one: on servers that do not publish uploads in one step,
put uploads to a temporary name and renames it. "-" is standard input. REMOTE is
absolute, or relative to the directory after login. If it ends in a slash, the
file keeps its local name in that directory.`,
		Example: `  netlock put ftp://bob@ftp.example.com/phone_lock phone.tsv data/phone.tsv
  sort phone.tsv | netlock put -w 60 ftp://bob@ftp.example.com/phone_lock - x`,
		Args: requireThreeNames,
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
		Long: `Get acquires the lock, downloads the file and releases the lock. If LOCAL is a
directory, the file keeps its remote name there. Get replaces the local file
when the whole file is on the disk. If the download breaks off or the lock is
lost, the old file stays. "-" is standard output, which may contain a part of
the file if the status is not 0.`,
		Example: `  netlock get ftp://bob@ftp.example.com/phone_lock data/phone.tsv phone.tsv
  netlock get ftp://bob@ftp.example.com/phone_lock data/phone.tsv - | wc -l`,
		Args: requireThreeNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.get(cmd.Context(), args[0], args[1], args[2])
		},
	}
	s.lockFlags(cmd)
	return cmd
}

// requireThreeNames requires three arguments that are not empty: a script may have a variable that is not set.
func requireThreeNames(cmd *cobra.Command, args []string) error {
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
	if strings.HasSuffix(remote, "/") {
		if local == "-" {
			return fail(exitUsage, "put: %s is a directory: name the file for standard input", remote)
		}
		remote += filepath.Base(local)
	}
	return s.withLock(ctx, arg, "put "+remote, func(ctx context.Context, l *locksmith.Lock) error {
		return l.Put(ctx, remote, in, size)
	})
}

// openSource opens a local file and returns its size, or -1 if the size is unknown.
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
	case !info.Mode().IsRegular(), info.Size() == 0: // files of /proc have no size, but bytes
		return f, -1, nil
	}
	return f, info.Size(), nil
}

func (s *settings) get(ctx context.Context, arg, remote, local string) error {
	if local == "-" {
		return s.withLock(ctx, arg, "get "+remote, func(ctx context.Context, l *locksmith.Lock) error {
			_, err := l.Get(ctx, remote, os.Stdout)
			return err
		})
	}
	d, err := newDownload(local, path.Base(remote))
	if err != nil {
		return fail(exitFailed, "%w", err)
	}
	defer d.discard()
	err = s.withLock(ctx, arg, "get "+remote, func(ctx context.Context, l *locksmith.Lock) error {
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

// withLock calls do with the lock of a target, or with the lock of the netlock that runs this process. The loss of the lock is an error even if do
// succeeds.
func (s *settings) withLock(ctx context.Context, arg, action string, do func(context.Context, *locksmith.Lock) error) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	t, err := s.resolve(arg)
	if err != nil {
		return err
	}
	verb, _, _ := strings.Cut(action, " ")
	lock, err := acquire(ctx, t, s.noteOf(os.Getpid(), "netlock", verb))
	if errors.Is(err, errNested) {
		lock, err = inherit(ctx, t)
	}
	if err != nil {
		return err
	}
	held, forget := context.WithCancelCause(ctx)
	defer context.AfterFunc(lock.Context(), func() { forget(context.Cause(lock.Context())) })()
	done := make(chan error, 1)
	go func() { done <- do(held, lock) }()
	select {
	case err = <-done:
	case <-held.Done():
		select { // a read from a pipe or a terminal may not return before the process ends
		case err = <-done:
		case <-time.After(abortTimeout):
			err = context.Cause(held)
		}
	}
	err = transferError(held, err, t, action)
	if rerr := release(lock, t); !errors.Is(err, locksmith.ErrLost) {
		err = errors.Join(err, rerr)
	}
	return err
}

// abortTimeout is the time for a transfer to end when its lock is lost, or after a signal.
const abortTimeout = 3 * time.Second

// inheritTimeout limits the wait for a server that does not answer. By then the netlock that holds the lock has lost it.
const inheritTimeout = 15 * time.Second

// inherit returns the lock of the netlock that runs this process, or an error if that does not hold it any more.
func inherit(ctx context.Context, t *target) (*locksmith.Lock, error) {
	t.connect.JobKey = os.Getenv(jobKeyVariable)
	ctx, cancel := t.withDeadline(ctx)
	defer cancel()
	token, _ := strconv.ParseUint(os.Getenv(tokenVariable), 10, 64) // it is empty for a server other than ftplockd
	ticket := locksmith.Ticket{Token: token, JobKey: t.connect.JobKey, Path: os.Getenv(pathVariable)}
	lock, err := locksmith.Join(ctx, t.connect, ticket, locksmith.Options{Wait: inheritTimeout})
	return lock, classify(err, t)
}

// transferError adds a status to the error of a transfer. The loss of the lock and a signal precede other errors.
func transferError(ctx context.Context, err error, t *target, action string) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return classify(context.Cause(ctx), t)
	case err == nil, errors.Is(err, locksmith.ErrLost), errors.Is(err, locksmith.ErrUnknown):
		return classify(err, t)
	}
	return fail(exitFailed, "%s: %s: %w", t.name, action, err)
}
