package driver

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"io/fs"
	"strings"

	"github.com/ftplockd/ftplockd/control"
	"github.com/ftplockd/ftplockd/files"
	"github.com/ftplockd/ftplockd/lock"
)

// comb is COMB: it appends files to one, which need not be there yet, and removes them. The parts
// are removed when the whole is published, and not before: ftpserverlib v0.32.3 removes each as soon as it was
// read, and then they are lost if the end fails.
func (s *session) comb(cmd control.Command) control.Decision {
	// A path with spaces stands in quotes, as in a line of CSV whose separator is the space.
	reader := csv.NewReader(strings.NewReader(cmd.Param))
	reader.Comma = ' '
	paths, err := reader.Read()
	if err != nil || len(paths) < 2 {
		return reply(501, `COMB wants the path of the whole and of its parts; those with spaces in "quotes"`)
	}
	for i := range paths {
		if paths[i], err = s.abs(paths[i]); err != nil {
			return s.refuse("", err)
		}
	}
	failed, err := s.client.combine(s.context(), paths[0], paths[1:])
	if err != nil {
		return s.refuse(failed, err)
	}
	return reply(250, paths[0]+" combined")
}

// combine appends the parts to the whole, and then removes them. With an error it says which path it is about.
func (c *client) combine(ctx context.Context, whole string, parts []string) (failed string, err error) {
	if failed, err := c.distinct(append([]string{whole}, parts...)); err != nil {
		return failed, err
	}
	r, _, err := c.receive(whole, files.UploadOptions{Append: true})
	if err != nil {
		return whole, err
	}
	for _, part := range parts {
		if err := c.append(r, part); err != nil {
			return part, errors.Join(err, r.Discard())
		}
	}
	if err := errors.Join(r.Sync(), r.Publish()); err != nil {
		return whole, errors.Join(err, r.Discard())
	}
	for _, part := range parts {
		if err := c.delete(ctx, part); err != nil {
			return part, err
		}
	}
	return "", nil
}

// distinct refuses a file that is named twice: it would be removed when it was appended to itself.
func (c *client) distinct(views []string) (failed string, err error) {
	seen := make(map[lock.Name]bool)
	for _, view := range views {
		n, err := c.resolve(view)
		if err != nil {
			return view, err
		}
		if seen[n] {
			return view, errTwice
		}
		seen[n] = true
	}
	return "", nil
}

var errTwice = &refusal{code: 501, text: "is named twice", is: fs.ErrInvalid}

// append copies one part. A part that may not be removed later is refused now.
func (c *client) append(to io.Writer, part string) error {
	if err := c.mayMoveFrom(part); err != nil {
		return err
	}
	from, err := c.content(part, files.DownloadOptions{})
	if err != nil {
		return err
	}
	_, err = io.Copy(to, &whileConnected{from, c.session})
	return errors.Join(err, from.Close())
}
