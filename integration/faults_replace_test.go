package integration

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// oldWay uploads a file under a temporary name, locks, deletes the old file, renames and unlocks, all in dir.
type oldWay struct {
	name, need string
	line       func(t *testing.T, s *server, dir, file string) []string
	do         func(s *server, dir, file string) error // instead of line
}

func oldScript(interpreter, script string) func(*testing.T, *server, string, string) []string {
	return func(_ *testing.T, s *server, dir, file string) []string {
		host, port := split(s.v4)
		return []string{interpreter, "testdata/clients/" + script, host, port, account, password, dir, file}
	}
}

// steps are the commands after the upload; tmp, lock and the rest lie in dir.
func steps(dir string) []string {
	return []string{"MKD " + dir + "/phone_lock", "DELE " + dir + "/phone.tsv", "RNFR " + dir + "/phone.tmp",
		"RNTO " + dir + "/phone.tsv", "RMD " + dir + "/phone_lock"}
}

var oldWays = []oldWay{
	{name: "Net::FTP", need: "perl", line: oldScript("perl", "old.pl")},
	{name: "ftplib", need: "python3", line: oldScript("python3", "old.py")},
	{name: "PHP", need: "php", line: oldScript("php", "old.php")},
	{name: "curl", need: "curl", line: func(_ *testing.T, s *server, dir, file string) []string {
		args := []string{"curl", "-sS", "-u", account + ":" + password, "-T", file, "ftp://" + s.v4 + dir + "/phone.tmp"}
		for _, step := range steps("/" + dir[1:]) {
			args = append(args, "-Q", "-"+step) // after the transfer
		}
		return args
	}},
	{name: "lftp", need: "lftp", line: func(_ *testing.T, s *server, dir, file string) []string {
		return []string{"lftp", "-c", lftpOpen(s) + "cd " + dir + "; put " + file + " -o phone.tmp; mkdir phone_lock; rm phone.tsv; " +
			"mv phone.tmp phone.tsv; rmdir phone_lock"}
	}},
	{name: "ncftp", need: "ncftpput", line: func(_ *testing.T, s *server, dir, file string) []string {
		host, port := split(s.v4)
		args := []string{"ncftpput", "-u", account, "-p", password, "-P", port, "-t", "20", "-F", "-V"}
		for _, step := range steps(dir) {
			args = append(args, "-Y", step) // after the transfer
		}
		return append(args, "-C", host, file, dir+"/phone.tmp")
	}},
	{name: "tnftp", need: "tnftp", line: func(t *testing.T, s *server, dir, file string) []string {
		host, port := split(s.v4)
		commands := filepath.Join(t.TempDir(), "commands")
		text := fmt.Sprintf("user %s %s\nbinary\ncd %s\nput %s phone.tmp\nmkdir phone_lock\ndelete phone.tsv\nrename phone.tmp phone.tsv\nrmdir phone_lock\nquit\n",
			account, password, dir, file)
		if err := os.WriteFile(commands, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"sh", "-c", `exec tnftp "$@" <"$0"`, commands, "-i", "-n", "-v", "-q", "20", host, port}
	}},
	{name: "jlaffaye", do: func(s *server, dir, file string) error {
		c, err := jlaffayeDial(way{address: s.v4})
		if err != nil {
			return err
		}
		content, err := os.ReadFile(file)
		for _, step := range []func() error{
			func() error { return err },
			func() error { return c.ChangeDir(dir) },
			func() error { return c.Stor("phone.tmp", bytes.NewReader(content)) },
			func() error { return c.MakeDir("phone_lock") },
			func() error { return c.Delete("phone.tsv") },
			func() error { return c.Rename("phone.tmp", "phone.tsv") },
			func() error { return c.RemoveDir("phone_lock") },
			c.Quit,
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}},
}

func TestTheOldWayOfReplacingAFileStillWorks(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	content := strings.Repeat("new\r\n", 30_000)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, o := range oldWays {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			dir := "/" + strings.ReplaceAll(o.name, "::", "-")
			s.write(dir+"/phone.tsv", "old")
			if o.do != nil {
				if err := o.do(s, dir, file); err != nil {
					t.Error(err)
				}
			} else {
				need(t, o.need)
				line := o.line(t, s, dir, file)
				if r := run(t, line[0], line[1:]...); r.status != 0 {
					t.Errorf("exit status %d: %s", r.status, r.out)
				}
			}
			if got := s.read(dir + "/phone.tsv"); got != content {
				t.Errorf("%d bytes, want %d", len(got), len(content))
			}
			if entries, err := os.ReadDir(s.path(dir)); err != nil || len(entries) != 1 {
				t.Errorf("left over: %v, %v", entries, err)
			}
		})
	}
}

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
			writer.want(200, "TYPE I")
			reader.want(200, "TYPE I")
			over := make(chan struct{})
			var readers sync.WaitGroup
			reads := [2]int{}
			for i, read := range []func() ([]byte, error){
				func() ([]byte, error) { return os.ReadFile(s.path(target)) },
				func() ([]byte, error) { return reader.retrieve("RETR " + target) },
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
		return c.store(target, content)
	}
	if err := c.store(target+".tmp", content); err != nil {
		return err
	}
	for _, line := range []string{"RNFR " + target + ".tmp", "RNTO " + target} {
		if r, err := c.try(line); err != nil || r.code >= 400 {
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
			reader.want(200, "TYPE I")
			data, err := reader.open("RETR " + target)
			if err != nil {
				t.Fatal(err)
			}
			defer data.Close()
			begin := make([]byte, 1000)
			if _, err := io.ReadFull(data, begin); err != nil {
				t.Fatal(err)
			}
			upload := target
			if change.lines != nil {
				upload += ".tmp"
			}
			if err := writer.store(upload, []byte("new")); err != nil {
				t.Fatal(err)
			}
			for _, line := range change.lines {
				if r, err := writer.try(fmt.Sprintf(line, target)); err != nil || r.code >= 400 {
					t.Fatalf("%s: %v, %v", line, r, err)
				}
			}
			rest, err := io.ReadAll(data)
			if got := string(begin) + string(rest); err != nil || got != old {
				t.Errorf("the download has %d bytes of %d, %v", len(got), len(old), err)
			}
			if err := reader.done(); err != nil {
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
