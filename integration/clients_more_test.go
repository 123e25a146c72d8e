package integration

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jlaffaye/ftp"
)

// curlJob locks with one curl after the other, each a session of its own of the same account.
func curlJob(t *testing.T, j job) string {
	options := append(curlOptions(j.tls), "-v", "-m", "30")
	if !j.passive {
		options = append(options, "--ftp-port", "-")
	}
	url := "ftp://" + j.address
	curl := func(args ...string) result { return run(t, "curl", slices.Concat(options, args)...) }
	must := func(args ...string) string {
		r := curl(args...)
		if r.status != 0 {
			t.Fatalf("curl %q: exit status %d\n%s", args, r.status, r.out)
		}
		return r.out
	}
	quote := func(commands ...string) []string {
		args := []string{"-I", url + "/"} // no listing
		for _, c := range commands {
			args = append(args, "-Q", c)
		}
		return args
	}
	must(quote("MKD " + j.lock())...)
	why := curl(quote("MKD " + j.lock())...)
	if why.status != 21 { // CURLE_QUOTE_ERROR
		t.Fatalf("second MKD: exit status %d\n%s", why.status, why.out)
	}
	must(quote("RMD " + j.lock())...)

	up, down := filepath.Join(j.local, "up"), filepath.Join(j.local, "down")
	var kind []string
	if j.ascii {
		kind = []string{"--use-ascii"}
	}
	must(slices.Concat(kind, []string{"-T", up, url + j.dir + "/first"})...)
	if list := must("-l", url+j.dir+"/"); !strings.Contains(list, "first") {
		t.Fatal(list)
	}
	must(slices.Concat(kind, []string{"-o", down, url + j.dir + "/first"})...)
	must(quote("RNFR "+j.dir+"/first", "RNTO "+j.dir+"/kept")...)
	must(slices.Concat(kind, []string{"-T", up, url + j.dir + "/gone"})...)
	must(quote("DELE " + j.dir + "/gone")...)
	return why.out
}

func lftpJob(t *testing.T, j job) string {
	yes := map[bool]string{true: "true", false: "false"}
	open := lftpOpen(j.address, j.tls) + "set ftp:passive-mode " + yes[j.passive] + "; "
	kind := ""
	if j.ascii {
		kind = "-a "
	}
	up, down := filepath.Join(j.local, "up"), filepath.Join(j.local, "down")
	mustRun(t, "lftp", "-c", open+"mkdir "+j.lock())
	why := run(t, "lftp", "-c", open+"mkdir "+j.lock())
	if why.status == 0 {
		t.Fatal("second mkdir:", why.out)
	}
	mustRun(t, "lftp", "-c", open+"rmdir "+j.lock())
	list := mustRun(t, "lftp", "-c", open+"cd "+j.dir+"; put "+kind+up+" -o first; cls -1; get "+kind+"first -o "+down+
		"; mv first kept; put "+kind+up+" -o gone; rm gone")
	if !strings.Contains(list, "first") {
		t.Fatal(list)
	}
	return why.out
}

// jlaffayeDial opens a session of Go's most used FTP client.
func jlaffayeDial(w way) (*ftp.ServerConn, error) {
	options := []ftp.DialOption{ftp.DialWithTimeout(20 * time.Second)}
	if w.tls {
		options = append(options, ftp.DialWithExplicitTLS(&tls.Config{InsecureSkipVerify: true}))
	}
	c, err := ftp.Dial(w.address, options...)
	if err != nil {
		return nil, err
	}
	kind := ftp.TransferTypeBinary
	if w.ascii {
		kind = ftp.TransferTypeASCII
	}
	return c, errors.Join(c.Login(account, password), c.Type(kind))
}

func jlaffayeJob(t *testing.T, j job) string {
	one, err := jlaffayeDial(j.way)
	if err != nil {
		t.Fatal(err)
	}
	two, err := jlaffayeDial(j.way)
	if err != nil {
		t.Fatal(err)
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must("mkdir", one.MakeDir(j.lock()))
	refusal := two.MakeDir(j.lock())
	var said *textproto.Error
	if !errors.As(refusal, &said) || said.Code != 550 {
		t.Fatal("second mkdir:", refusal)
	}
	must("rmdir", one.RemoveDir(j.lock()))

	up, err := os.ReadFile(filepath.Join(j.local, "up"))
	must("read", err)
	must("cwd", one.ChangeDir(j.dir))
	must("stor", one.Stor("first", bytes.NewReader(up)))
	entries, err := one.List(".")
	must("list", err)
	if !slices.ContainsFunc(entries, func(e *ftp.Entry) bool { return e.Name == "first" }) {
		t.Fatal("list:", entries)
	}
	r, err := one.Retr("first")
	must("retr", err)
	down, err := io.ReadAll(r)
	must("retr", errors.Join(err, r.Close()))
	must("write", os.WriteFile(filepath.Join(j.local, "down"), down, 0o644))
	must("rename", one.Rename("first", "kept"))
	must("stor", one.Stor("gone", bytes.NewReader(up)))
	must("delete", one.Delete("gone"))
	must("quit", errors.Join(one.Quit(), two.Quit()))
	return refusal.Error()
}
