package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// Readers on the host and over FTP see a whole file at any time, whether it is replaced by STOR or by RNTO.
func TestReadersNeverMissAFileThatIsReplaced(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[files]\ndurable = false\n"+defaults)
	for _, how := range []string{"STOR", "RNTO"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			target := "/" + how
			s.write(target, strings.Repeat("first\n", wholeLines))
			writer, reader := s.session(account), s.session("other")
			writer.Want(200, "TYPE I")
			reader.Want(200, "TYPE I")
			over := make(chan struct{})
			var readers sync.WaitGroup
			reads := [2]int{}
			for i, read := range []func() ([]byte, error){
				func() ([]byte, error) { return os.ReadFile(s.path(target)) },
				func() ([]byte, error) { return reader.Retrieve("RETR " + target) },
			} {
				readers.Go(func() {
					for {
						select {
						case <-over:
							return
						default:
						}
						content, err := read()
						if err != nil || !whole(content) {
							t.Errorf("%d bytes, %v", len(content), err)
							return
						}
						reads[i]++
					}
				})
			}
			for i := range count(60, 3000) {
				if err := replaceOnce(writer, how, target, bytes.Repeat(fmt.Appendf(nil, "%d\n", i), wholeLines)); err != nil {
					t.Error(err)
					break
				}
			}
			close(over)
			readers.Wait()
			if reads[0] == 0 || reads[1] == 0 {
				t.Errorf("nobody read anything: %v", reads)
			}
		})
	}
}

func replaceOnce(c *session, how, target string, content []byte) error {
	if how == "STOR" {
		return c.Store(target, content)
	}
	if err := c.Store(target+".tmp", content); err != nil {
		return err
	}
	for _, line := range []string{"RNFR " + target + ".tmp", "RNTO " + target} {
		if r, err := c.Try(line); err != nil || r.Code >= 400 {
			return fmt.Errorf("%s: %v, %v", line, r, err)
		}
	}
	return nil
}

// A plain STOR replaces what has the name when it ends, whatever a program on the host did to the target meanwhile.
func TestStorReplacesWhatTheHostLeft(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	c := s.session(account)
	c.Want(200, "TYPE I")
	for _, tc := range []struct {
		name   string
		change func(target string) error
		mode   os.FileMode // of the file afterwards; 0: it is a directory
		other  string      // what the file with the suffix .other has then
	}{
		{"renamed", func(target string) error { return os.Rename(target, target+".other") }, 0o640, "old"},
		{"linked", func(target string) error { return os.Link(target, target+".other") }, 0o640, "old"},
		{"removed", os.Remove, 0o640, ""},
		{"written", func(target string) error { return os.WriteFile(target, []byte("by the host"), 0) }, 0o640, ""},
		{"mode", func(target string) error { return os.Chmod(target, 0o600) }, 0o600, ""},
		{"directory", func(target string) error { return errors.Join(os.Remove(target), os.Mkdir(target, 0o755)) }, 0, ""},
	} {
		target := "/" + tc.name
		s.write(target, "old")
		if err := os.Chmod(s.path(target), 0o640); err != nil {
			t.Fatal(err)
		}
		data := c.begin("STOR " + target)
		if _, err := data.Write([]byte("new")); err != nil {
			t.Fatal(err)
		}
		if err := tc.change(s.path(target)); err != nil {
			t.Fatal(err)
		}
		data.Close()
		if tc.mode == 0 {
			c.WantReply(550, "is a directory")
		} else {
			c.WantReply(226)
			s.wantFile(t, target, "new")
		}
		info, err := os.Stat(s.path(target))
		if err != nil || info.IsDir() != (tc.mode == 0) || tc.mode != 0 && info.Mode().Perm() != tc.mode {
			t.Errorf("%s: %v, %v", tc.name, info.Mode(), err)
		}
		if tc.other != "" {
			s.wantFile(t, target+".other", tc.other)
		}
	}
	if left := s.unfinished(); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}
