package main

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/lock"
	"github.com/ftplockd/ftplockd/internal/lock/journal"
)

// TestAStartThatFailsChangesNothing starts servers that must fail with one line of error, and compares the files before and after.
func TestAStartThatFailsChangesNothing(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	one := func(text string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(dir+"/f", []byte(text), 0o600) }
	}
	const etcd, etcdTLS = "[etcd]\nendpoints = ['http://a:1']\n", "[etcd]\nendpoints = ['https://a:1']\n"
	for name, c := range map[string]struct {
		listen, more string
		before       func(dir string) error
		errors       []string
		status       int // exitFailure
		noPassword   bool
	}{
		"a port in use":                 {listen: "'127.0.0.1:0', '" + taken.Addr().String() + "'", errors: []string{"listen: ", taken.Addr().String(), "in use"}},
		"an address of another machine": {listen: "'192.0.2.1:2121'", errors: []string{"listen: ", "192.0.2.1:2121"}},
		"a port in use for implicit TLS": {
			more:   pairLines("DIR/first.cert", "DIR/first.key") + "implicit_listen = ['" + taken.Addr().String() + "']\n",
			before: func(dir string) error { writePair(t, dir, "first"); return nil },
			errors: []string{"tls.implicit_listen: ", taken.Addr().String(), "in use"},
		},
		"a file that is no certificate": {
			more:   pairLines("DIR/f", "DIR/f"),
			before: one("hello"),
			errors: []string{"tls.certificate DIR/f", "PEM"},
		},
		"a missing certificate": {more: pairLines("DIR/none", "DIR/none"), errors: []string{"tls.certificate DIR/none", "no such file"}},
		"the key of another certificate": {
			more:   pairLines("DIR/first.cert", "DIR/second.key"),
			before: func(dir string) error { writePair(t, dir, "first"); writePair(t, dir, "second"); return nil },
			errors: []string{"DIR/first.cert", "DIR/second.key", "does not match"},
		},
		"a state directory that cannot be written": {
			before: func(dir string) error {
				if os.Getuid() == 0 { // root cannot make a file there
					return os.Symlink("/proc/self/fdinfo", dir+"/state")
				}
				return os.Mkdir(dir+"/state", 0o500)
			},
			errors: []string{"the state directory cannot be written", "DIR/state"},
		},
		"a port in use for the page": {more: "xferlog = 'DIR/xferlog'\n[http]\nlisten = '" + taken.Addr().String() + "'\n", errors: []string{"http.listen: ", taken.Addr().String(), "in use"}},
		"a missing hook":             {more: "[[hook]]\non = ['login']\nrun = ['DIR/none']\n", errors: []string{"hook[1].run: ", "DIR/none", "no such file"}},
		"a hook without the mode of a program": {
			more:   "[[hook]]\non = ['login']\nrun = ['/bin/sh']\n[[hook]]\non = ['login']\nrun = ['DIR/f']\n",
			before: one("hello"),
			errors: []string{"hook[2].run: ", "DIR/f", "is not an executable file"},
		},
		"an xferlog that cannot be opened": {more: "xferlog = 'DIR/none/xferlog'\n", errors: []string{"xferlog: ", "DIR/none/xferlog", "no such file"}},
		"a state directory in use": {
			more: "xferlog = 'DIR/xferlog'\n[[lock]]\nmatch = '/new/**'\n",
			before: func(dir string) error {
				if err := os.Mkdir(dir+"/state", 0o700); err != nil {
					return err
				}
				other, _, err := journal.ReserveDir(dir+"/state", lock.NewSystemClock(), "") // unlike Open, Claim changes the directory only now
				if err == nil {
					t.Cleanup(func() { other.Close() })
				}
				return err
			},
			errors: []string{"state DIR/state is in use: another ftplockd (pid " + strconv.Itoa(os.Getpid()) + ") uses this directory"},
		},
		"a file for the state directory, and an xferlog": {
			more:   "xferlog = 'DIR/xferlog'\n",
			before: func(dir string) error { return os.WriteFile(dir+"/state", nil, 0o600) },
			errors: []string{"DIR/state", "not a directory"},
		},
		// Without these checks a standby would fail when it takes over, perhaps weeks later.
		"a port in use, for a standby": {listen: "'" + taken.Addr().String() + "'", more: etcd, errors: []string{"listen: ", "in use"}},
		"a password for etcd that is empty": {
			more: etcdTLS + "user = 'u'\npassword_file = 'DIR/f'\n", before: one("\nx"), errors: []string{"etcd.password_file: DIR/f"},
		},
		"a file for etcd that is no authority": {more: etcdTLS + "ca = 'DIR/f'\n", before: one("x"), errors: []string{"etcd.ca: DIR/f"}},
		"a file for etcd that is no certificate": {
			more: etcdTLS + "certificate = 'DIR/f'\nkey = 'DIR/f'\n", before: one("x"), errors: []string{"etcd.certificate DIR/f"},
		},
		"a generated password with several servers": {more: etcd, noPassword: true, errors: []string{"FTPLOCKD_PASSWORD"}, status: exitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.noPassword {
				t.Setenv("FTPLOCKD_PASSWORD", "x")
			}
			dir := t.TempDir()
			fill := func(text string) string { return strings.ReplaceAll(text, "DIR", dir) }
			if c.before != nil {
				if err := c.before(dir); err != nil {
					t.Fatal(err)
				}
			}
			if c.listen == "" {
				c.listen = "'127.0.0.1:0'"
			}
			file := filepath.Join(dir, "ftplockd.toml")
			text := "listen = [" + c.listen + "]\nroot = '" + dir + "/files'\nstate = '" + dir + "/state'\n" + fill(c.more)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			before, running := names(t, dir), goleak.IgnoreCurrent()
			stdout, stderr, status := runCommand(t.Context(), "--config", file)
			if status != cmp.Or(c.status, exitFailure) || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("status %d, %q, %q", status, stdout, stderr)
			}
			for _, want := range c.errors {
				if !strings.Contains(stderr, fill(want)) {
					t.Errorf("%q lacks %q", stderr, fill(want))
				}
			}
			if after := names(t, dir); after != before {
				t.Errorf("there was\n%s\nand there is\n%s", before, after)
			}
			goleak.VerifyNone(t, running)
		})
	}
}

// names lists the files below a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all.WriteString(path + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
