package integration

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// uploader is a client that uploads its standard input.
type uploader struct {
	name string
	need string // the program, "" for none
	// command is one upload of standard input to path.
	command func(t testing.TB, s *server, kind, path string) *exec.Cmd
	// clean uploads what is in the file so many times, to path.1, path.2 and so on, each in a session of its own.
	clean func(t testing.TB, s *server, file, path string, times int)
}

func scriptUpload(interpreter, script string) func(testing.TB, *server, string, string) *exec.Cmd {
	return func(t testing.TB, s *server, kind, path string) *exec.Cmd {
		host, port := split(s.v4)
		return command(t, interpreter, "testdata/clients/"+script, host, port, account, password, kind, path)
	}
}

func scriptClean(interpreter, script string) func(testing.TB, *server, string, string, int) {
	return func(t testing.TB, s *server, file, path string, times int) {
		host, port := split(s.v4)
		cmd := command(t, interpreter, "testdata/clients/"+script, host, port, account, password, "I", path, strconv.Itoa(times))
		in, err := os.Open(file)
		if err != nil {
			t.Error(err)
			return
		}
		defer in.Close()
		cmd.Stdin = in
		if r := finish(t, cmd); r.status != 0 {
			t.Errorf("exit status %d: %s", r.status, r.out)
		}
	}
}

// each runs a command for each of a number of uploads.
func each(line func(s *server, file, path string) []string) func(testing.TB, *server, string, string, int) {
	return func(t testing.TB, s *server, file, path string, times int) {
		for i := 1; i <= times; i++ {
			args := line(s, file, fmt.Sprintf("%s.%d", path, i))
			if r := run(t, args[0], args[1:]...); r.status != 0 {
				t.Errorf("upload %d: exit status %d: %s", i, r.status, r.out)
			}
		}
	}
}

func lftpOpen(s *server) string {
	return "set net:max-retries 1; set net:timeout 20; set cmd:fail-exit yes; set ftp:ssl-allow no; open -u " +
		account + "," + password + " ftp://" + s.v4 + "; "
}

var uploaders = []uploader{
	{"Net::FTP", "perl", scriptUpload("perl", "put.pl"), scriptClean("perl", "put.pl")},
	{"ftplib", "python3", scriptUpload("python3", "put.py"), scriptClean("python3", "put.py")},
	{"curl", "curl", func(t testing.TB, s *server, kind, path string) *exec.Cmd {
		args := []string{"-sS", "-u", account + ":" + password, "-T", "-", "ftp://" + s.v4 + path}
		if kind == "A" {
			args = append(args, "--use-ascii")
		}
		return command(t, "curl", args...)
	}, each(func(s *server, file, path string) []string {
		return []string{"curl", "-sS", "-u", account + ":" + password, "-T", file, "ftp://" + s.v4 + path}
	})},
	{"lftp", "lftp", func(t testing.TB, s *server, kind, path string) *exec.Cmd {
		put := "put "
		if kind == "A" {
			put = "put -a "
		}
		return command(t, "lftp", "-c", lftpOpen(s)+put+"/dev/stdin -o "+path)
	}, each(func(s *server, file, path string) []string {
		return []string{"lftp", "-c", lftpOpen(s) + "put " + file + " -o " + path}
	})},
	{"jlaffaye", "", func(t testing.TB, s *server, kind, path string) *exec.Cmd {
		host, port := split(s.v4)
		self := goChild(t, "put", host, port, account, password, kind, path)
		return command(t, self[0], self[1:]...)
	}, jlaffayeClean},
}

func jlaffayeClean(t testing.TB, s *server, file, path string, times int) {
	content, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	for i := 1; i <= times; i++ {
		c, err := jlaffayeDial(way{address: s.v4})
		if err != nil {
			t.Error(err)
			return
		}
		if err := c.Stor(fmt.Sprintf("%s.%d", path, i), bytes.NewReader(content)); err != nil {
			t.Errorf("upload %d: %v", i, err)
		}
		if err := c.Quit(); err != nil {
			t.Error(err)
		}
	}
}

func TestKilledUploadersPublishNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	for _, u := range uploaders {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			if u.need != "" {
				need(t, u.need)
			}
			dir := strings.ReplaceAll(u.name, "::", "-")
			s.write(dir+"/target", "old")
			for i := range count(10, 200) {
				killUpload(t, s, u, dir, []string{"A", "I"}[i%2], int64(i)*30_000)
			}
		})
	}
}

// killUpload kills an uploader when so many bytes have arrived, and looks what became of the file.
func killUpload(t *testing.T, s *server, u uploader, dir, kind string, arrived int64) {
	t.Helper()
	p := launch(t, u.command(t, s, kind, "/"+dir+"/target"))
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		line := bytes.Repeat([]byte("what is uploaded\n"), 1000)
		for {
			if _, err := p.to.Write(line); err != nil {
				return // it is dead
			}
		}
	}()
	unfinished := func() []string {
		found, err := filepath.Glob(filepath.Join(s.path(dir), ".ftplockd-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	await(t, "bytes arrive", func() bool {
		for _, file := range unfinished() {
			if info, err := os.Stat(file); err == nil && info.Size() > arrived {
				return true
			}
		}
		return false
	})
	p.kill()
	<-fed
	await(t, "the upload is discarded", func() bool { return len(unfinished()) == 0 })
	if got := s.read(dir + "/target"); got != "old" {
		t.Errorf("%s, type %s, killed after %d bytes: published %d bytes", u.name, kind, arrived, len(got))
		s.write(dir+"/target", "old")
	}
}

func TestCleanUploadsAreNeverRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, "[files]\ndurable = false\n"+defaults)
	files := filesOfAllSizes(t)
	for _, u := range uploaders {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			if u.need != "" {
				need(t, u.need)
			}
			dir := strings.ReplaceAll(u.name, "::", "-")
			if err := os.Mkdir(s.path(dir), 0o755); err != nil {
				t.Fatal(err)
			}
			s.takesAll(t, u, files, dir, count(60, 2000))
		})
	}
}

// filesOfAllSizes writes files to be uploaded: sizes at which something ends (nothing, a line, a packet, a pipe, a piece of what the
// server reads at once), and one of several pieces.
func filesOfAllSizes(t *testing.T) (files []string) {
	t.Helper()
	for _, size := range []int{0, 1, 1448, 4096, 65_536, 110_000, 262_145, 3 << 20} {
		file := filepath.Join(t.TempDir(), fmt.Sprint(size))
		content := bytes.Repeat([]byte("all of it\r\n"), size/11+1)[:size]
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// takesAll has a client upload the files into a directory by turns, so many in all, and checks that all are there.
func (s *server) takesAll(t *testing.T, u uploader, files []string, dir string, uploads int) {
	t.Helper()
	for i, file := range files {
		times := (uploads + len(files) - 1 - i) / len(files)
		path := dir + "/" + filepath.Base(file)
		u.clean(t, s, file, "/"+path, times)
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i <= times; i++ {
			if got := s.read(fmt.Sprintf("%s.%d", path, i)); got != string(want) {
				t.Errorf("%s, upload %d: %d bytes", file, i, len(got))
			}
		}
	}
}

func TestUploadShorterThanAnnouncedIsDiscarded(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	s.write("target", "old")
	c := s.session(account)
	c.want(200, "TYPE I")
	c.want(200, "ALLO 1000")
	data, err := c.open("STOR /target")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(data, "fewer bytes than announced"); err != nil {
		t.Fatal(err)
	}
	data.Close()
	c.wantReply(426, "/target")
	if got := s.read("target"); got != "old" {
		t.Errorf("published %q", got)
	}
}

func TestUploadThatBeginsWithoutTheTLSThatWasAgreedIsDiscarded(t *testing.T) {
	t.Parallel()
	s := startServer(t, tlsTables(t, t.TempDir(), "one")+defaults)
	s.write("target", "old")
	c, _, err := connect(s.v4)
	if err != nil {
		t.Fatal(err)
	}
	defer c.conn.Close()
	c.t = t
	c.startTLS()
	c.want(331, "USER "+account)
	c.want(230, "PASS "+password)
	c.want(200, "TYPE I")
	c.want(200, "PBSZ 0")
	c.want(200, "PROT P")
	if err := c.store("/target", []byte("plain bytes")); err == nil || !strings.Contains(err.Error(), "426") {
		t.Errorf("told %v", err)
	}
	if got := s.read("target"); got != "old" {
		t.Errorf("published %q", got)
	}
}
