package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

// Who has begun to read a file gets all of it, and a hard link to it keeps it.
func TestTheOldContentIsKeptForThoseWhoHaveIt(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	old := strings.Repeat("the old content\n", 1<<20) // more than lies in the buffers of a connection
	for _, change := range []struct {
		name  string
		lines []string
		want  string // what the name then has; "": nothing
	}{
		{"STOR", nil, "new"},
		{"RNTO", []string{"RNFR %s.tmp", "RNTO %s"}, "new"},
		{"DELE and RNTO", []string{"DELE %s", "RNFR %s.tmp", "RNTO %s"}, "new"},
		{"DELE", []string{"DELE %s"}, ""},
	} {
		t.Run(change.name, func(t *testing.T) {
			target := "/" + strings.ReplaceAll(change.name, " ", "-")
			s.write(target, old)
			if err := os.Chmod(s.path(target), 0o640); err != nil {
				t.Fatal(err)
			}
			if err := os.Link(s.path(target), s.path(target+".link")); err != nil {
				t.Fatal(err)
			}
			reader, writer := s.session("other"), s.session(account)
			reader.Want(200, "TYPE I")
			data := reader.begin("RETR " + target)
			defer data.Close()
			begin := make([]byte, 1000)
			if _, err := io.ReadFull(data, begin); err != nil {
				t.Fatal(err)
			}
			upload := target
			if change.lines != nil {
				upload += ".tmp"
			}
			writer.stores(upload, "new")
			for _, line := range change.lines {
				if r, err := writer.Try(fmt.Sprintf(line, target)); err != nil || r.Code >= 400 {
					t.Fatalf("%s: %v, %v", line, r, err)
				}
			}
			rest, err := io.ReadAll(data)
			if got := string(begin) + string(rest); err != nil || got != old {
				t.Errorf("the download has %d bytes of %d, %v", len(got), len(old), err)
			}
			if err := reader.Done(); err != nil {
				t.Error(err)
			}
			if s.read(target+".link") != old {
				t.Error("the hard link has lost the old content")
			}
			if s.exists(target) != (change.want != "") || change.want != "" && s.read(target) != change.want {
				t.Errorf("%s is not %q", target, change.want)
			}
			if change.lines == nil {
				if info, err := os.Stat(s.path(target)); err != nil || info.Mode().Perm() != 0o640 {
					t.Errorf("mode %v, %v; it was 0640", info.Mode(), err)
				}
			}
		})
	}
}

// Without the check, APPE and REST with STOR publish the old content again: another client's RNTO, DELE or STOR, or the write of a
// program on the host, is lost although it succeeded.
func TestAppendDoesNotUndoAnotherChange(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	other := s.session("other")
	for _, change := range []struct {
		name string
		make func(file string)
		want string // what the file has then; "": it is not there
	}{
		{"upload, rename", func(file string) {
			other.stores(file+".tmp", "new")
			other.Want(350, "RNFR "+file+".tmp")
			other.Want(250, "RNTO "+file)
		}, "new"},
		{"rename away", func(file string) {
			other.Want(350, "RNFR "+file)
			other.Want(250, "RNTO "+file+".old")
		}, ""},
		{"DELE", func(file string) { other.Want(250, "DELE "+file) }, ""},
		{"STOR", func(file string) { other.stores(file, "new") }, "new"},
		{"write of the host", func(file string) { s.write(file, "new by the host") }, "new by the host"},
	} {
		for _, how := range []string{"APPE", "REST"} {
			t.Run(change.name+" during "+how, func(t *testing.T) {
				file := "/" + strings.NewReplacer(" ", "-", ",", "").Replace(change.name) + "." + how
				s.write(file, "old")
				c := s.session(account)
				c.Want(200, "TYPE I")
				command := "APPE " + file
				if how == "REST" {
					c.Want(350, "REST 3")
					command = "STOR " + file
				}
				data, err := c.Open(command)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := data.Write([]byte("more")); err != nil {
					t.Fatal(err)
				}
				change.make(file)
				data.Close()
				c.WantReply(550, "was changed, renamed or removed during the upload")
				if change.want != "" {
					s.wantFile(t, file, change.want)
				} else if s.exists(file) {
					t.Errorf("%s is back: %q", file, s.read(file))
				}
			})
		}
	}
	s.write("/quiet", "old")
	c := s.session(account)
	data := c.begin("APPE /quiet")
	_, _ = data.Write([]byte("more"))
	data.Close()
	c.WantReply(226)
	s.wantFile(t, "/quiet", "oldmore")
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
