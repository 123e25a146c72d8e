package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jlaffaye/ftp"
)

// goChild prepares this test binary as one of the Go clients below, which is a process that can be killed.
func goChild(t testing.TB, name string, args ...string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"env", childEnv + "=" + name, self}, args...)
}

// runChild is one of the Go clients: their arguments are those of the scripts of the same name in testdata.
func runChild(name string, args []string) int {
	var err error
	switch name {
	case "worker":
		err = work(args)
	case "put":
		err = put(args)
	case "chronicle":
		err = chronicle(args)
	default:
		err = errors.New("no such client")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func childDial(args []string, options ...ftp.DialOption) (*ftp.ServerConn, error) {
	c, err := ftp.Dial(args[0]+":"+args[1], append(options, ftp.DialWithTimeout(20*time.Second))...)
	if err != nil {
		return nil, err
	}
	return c, c.Login(args[2], args[3])
}

// put uploads standard input, once.
func put(args []string) error {
	c, err := childDial(args)
	if err != nil {
		return err
	}
	if args[4] == "A" {
		if err := c.Type(ftp.TransferTypeASCII); err != nil {
			return err
		}
	}
	return errors.Join(c.Stor(args[5], os.Stdin), c.Quit())
}

// work is worker.pl in Go.
func work(args []string) error {
	c, err := childDial(args)
	if err != nil {
		return err
	}
	id, role := args[4], args[5]
	rounds, err := strconv.Atoi(args[6])
	if err != nil {
		return err
	}
	log, err := os.OpenFile(args[7], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	for round := range rounds {
		for c.MakeDir("phone_lock") != nil {
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := fmt.Fprintf(log, "begin %s\n", id); err != nil {
			return err
		}
		if role == "up" {
			err = workUp(c, id, round)
		} else {
			err = workDown(c)
		}
		_, werr := fmt.Fprintf(log, "end %s\n", id)
		if err := errors.Join(err, werr, c.RemoveDir("phone_lock")); err != nil {
			return err
		}
	}
	return c.Quit()
}

func workUp(c *ftp.ServerConn, id string, round int) error {
	text := bytes.Repeat(fmt.Appendf(nil, "%s-%d\n", id, round), wholeLines)
	if err := c.Stor("phone."+id, bytes.NewReader(text)); err != nil {
		return err
	}
	return errors.Join(c.Delete("phone.tsv"), c.Rename("phone."+id, "phone.tsv"))
}

func workDown(c *ftp.ServerConn) error {
	r, err := c.Retr("phone.tsv")
	if err != nil {
		return err
	}
	text, err := io.ReadAll(r)
	if err == nil && !whole(text) {
		err = errors.New("torn")
	}
	return errors.Join(err, r.Close())
}

// wholeLines is how many times a worker's file has its one line.
const wholeLines = 4000

// whole reports whether one upload and nothing else is in the file.
func whole(text []byte) bool {
	i := bytes.IndexByte(text, '\n')
	return i > 0 && bytes.Equal(text, bytes.Repeat(text[:i+1], wholeLines))
}
