package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jlaffaye/ftp"
)

// goChild returns the command line that runs one of the Go clients below as a process.
func goChild(t testing.TB, name string, args ...string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"env", childEnv + "=" + name, self}, args...)
}

// runChild runs a Go client. It has the arguments of the script of the same name in testdata.
func runChild(name string, args []string) int {
	var err error
	switch name {
	case "put":
		err = put(args)
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

// wholeLines is the number of equal lines in a complete file.
const wholeLines = 4000

// whole reports whether the file has the lines of one upload only.
func whole(text []byte) bool {
	i := bytes.IndexByte(text, '\n')
	return i > 0 && bytes.Equal(text, bytes.Repeat(text[:i+1], wholeLines))
}
