//go:build linux

package deployments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jlaffaye/ftp"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/integration/peers"
)

// site is the FTP path of the deployed directory.
const site = "/pub/www"

// job is one deployment.
type job struct {
	server  *peers.Process
	account string
	address string // of the client
	dir     string // contains the version
	home    string // configuration and state of the program
}

func (j *job) port() string {
	_, port, _ := net.SplitHostPort(j.server.Address)
	return port
}

// program deploys a directory to the site.
type program struct {
	name     string
	needs    []string // commands
	sessions bool     // one connection per job: suits job = "session"
	// exact reports whether the program compares the whole site. git-ftp, ftp-deploy and dg trust a record of their last job.
	exact bool
	// command returns the command that deploys; nil: the test imitates the program.
	command func(t testing.TB, j *job) []string
	imitate func(ctx context.Context, j *job) error
	prepare func(t testing.TB, j *job) // makes dir ready after its content changed
}

// programs returns all programs.
func programs() []program {
	all := []program{
		{name: "git-ftp", needs: []string{"git", "git-ftp", "curl"}, command: gitFTP, prepare: commit},
		{name: "rclone", needs: []string{"rclone"}, exact: true, command: rclone},
		{name: "ftp-deploy", needs: []string{"ftp-deploy"}, sessions: true, command: ftpDeploy},
		{name: "curl", needs: []string{"curl"}, exact: true, command: curlScript},
		{name: "dg", sessions: true, imitate: dg},
		{name: "FileZilla", exact: true, imitate: fileZilla},
	}
	for _, n := range []int{1, 2, 4} {
		all = append(all, program{name: fmt.Sprintf("lftp, parallel %d", n), needs: []string{"lftp"}, sessions: n == 1, exact: true, command: lftp(n)})
	}
	return all
}

// gitFTP pushes the current commit. Its curl binds to the address of the job.
func gitFTP(t testing.TB, j *job) []string {
	write(t, filepath.Join(j.home, ".curlrc"), fmt.Sprintf("interface = %s\nsilent\n", j.address))
	action := "push"
	if !exists(filepath.Join(j.server.Root, site, ".git-ftp.log")) {
		action = "init"
	}
	return []string{"git-ftp", action, "--user", j.account, "--passwd", harness.Password, fmt.Sprintf("ftp://127.0.0.1:%s/%s", j.port(), strings.TrimPrefix(site, "/"))}
}

// commit commits the content of the directory.
func commit(t testing.TB, j *job) {
	git(t, j.dir, "add", "--all")
	git(t, j.dir, "commit", "--quiet", "--allow-empty", "--message", "version")
}

func rclone(t testing.TB, j *job) []string {
	hidden, err := exec.Command("rclone", "obscure", harness.Password).Output()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"rclone", "sync", j.dir, ":ftp:" + site, "--exclude", ".*", "--config", "", "--bind", j.address, "--retries", "1",
		"--ftp-host", "127.0.0.1", "--ftp-port", j.port(), "--ftp-user", j.account, "--ftp-pass", string(bytes.TrimSpace(hidden))}
}

func lftp(parallel int) func(testing.TB, *job) []string {
	return func(_ testing.TB, j *job) []string {
		return []string{"lftp", "-c", fmt.Sprintf(`set net:socket-bind-ipv4 %s; set ftp:ssl-allow no; set net:max-retries 3; set net:reconnect-interval-base 1; set cmd:fail-exit yes;
open -u %s,%s -p %s 127.0.0.1; mirror -R --delete --parallel=%d --exclude '^\.' %s %s`, j.address, j.account, harness.Password, j.port(), parallel, j.dir, site)}
	}
}

// ftpDeploy runs the program behind FTP-Deploy-Action. It cannot bind to an address.
func ftpDeploy(_ testing.TB, j *job) []string {
	return []string{"ftp-deploy", "--server", "127.0.0.1", "--port", j.port(), "--username", j.account, "--password", harness.Password,
		"--local-dir", "./", "--server-dir", site + "/", "--log-level", "minimal"}
}

// curlScript is a shell script as people write it: list, upload everything, delete the rest; one curl for each step.
func curlScript(t testing.TB, j *job) []string {
	script := filepath.Join(j.home, "deploy.sh")
	write(t, script, fmt.Sprintf(`set -e
url=ftp://127.0.0.1:%s%s
c="curl --silent --show-error --interface %s --user %s:%s"
cd %s
old=$($c --ftp-create-dirs "$url/" --list-only) || exit 1
for f in $(find * -type f | sort); do $c --ftp-create-dirs -T "$f" "$url/$f"; done
for f in $old; do
  [ -e "$f" ] && continue
  case $f in
  *.*) $c "ftp://127.0.0.1:%[1]s/" --quote "DELE %[2]s/$f" >/dev/null ;;
  *) for g in $($c "$url/$f/" --list-only); do $c "ftp://127.0.0.1:%[1]s/" --quote "DELE %[2]s/$f/$g" >/dev/null; done
     $c "ftp://127.0.0.1:%[1]s/" --quote "RMD %[2]s/$f" >/dev/null ;;
  esac
done
`, j.port(), site, j.address, j.account, harness.Password, j.dir))
	return []string{"sh", script}
}

// dial opens a session from the address of the job.
func (j *job) dial(ctx context.Context) (*ftp.ServerConn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(j.address)}, Timeout: 20 * time.Second}
	c, err := ftp.Dial(j.server.Address, ftp.DialWithContext(ctx), ftp.DialWithDialFunc(func(network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			context.AfterFunc(ctx, func() { conn.Close() })
		}
		return conn, err
	}))
	if err != nil {
		return nil, err
	}
	return c, c.Login(j.account, harness.Password)
}

// dg imitates dg/ftp-deployment 3: it reads its record, uploads every changed file to a temporary name, renames all,
// deletes the rest and writes its record, over one connection.
func dg(ctx context.Context, j *job) error {
	c, err := j.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Quit()
	const record = site + "/.htdeployment"
	remote := make(map[string]bool)
	if r, err := c.Retr(record); err == nil {
		text, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		for file := range strings.FieldsSeq(string(text)) {
			remote[file] = true
		}
	} else if !refused(err, "no such") {
		return err
	}
	local, err := localFiles(j.dir)
	if err != nil {
		return err
	}
	made := map[string]bool{site: true}
	if err := c.MakeDir(site); err != nil && !exist(err) {
		return err
	}
	for _, file := range local {
		if dir := path.Join(site, path.Dir(file)); !made[dir] {
			if err := c.MakeDir(dir); err != nil && !exist(err) {
				return err
			}
			made[dir] = true
		}
		text, err := os.ReadFile(filepath.Join(j.dir, file))
		if err != nil {
			return err
		}
		if err := c.Stor(path.Join(site, file)+".deploytmp", bytes.NewReader(text)); err != nil {
			return err
		}
	}
	for _, file := range local {
		if err := c.Rename(path.Join(site, file)+".deploytmp", path.Join(site, file)); err != nil {
			return err
		}
		delete(remote, file)
	}
	for file := range remote {
		if err := c.Delete(path.Join(site, file)); err != nil && !refused(err, "no such") {
			return err
		}
	}
	return c.Stor(record, strings.NewReader(strings.Join(local, "\n")))
}

// fileZilla imitates a person with FileZilla: a session lists the site, two more upload all files, and the first one deletes
// the rest and the directories that are empty then.
func fileZilla(ctx context.Context, j *job) error {
	browse, err := j.dial(ctx)
	if err != nil {
		return err
	}
	defer browse.Quit()
	if err := browse.MakeDir(site); err != nil && !exist(err) {
		return err
	}
	remote, dirs, err := listTree(browse, site)
	if err != nil {
		return err
	}
	local, err := localFiles(j.dir)
	if err != nil {
		return err
	}
	for _, file := range local {
		if dir := path.Join(site, path.Dir(file)); !slices.Contains(dirs, dir) && dir != site {
			if err := browse.MakeDir(dir); err != nil && !exist(err) {
				return err
			}
			dirs = append(dirs, dir)
		}
	}
	uploads := make(chan error, 2)
	for half := range 2 {
		go func() {
			c, err := j.dial(ctx)
			if err != nil {
				uploads <- err
				return
			}
			defer c.Quit()
			for i := half; i < len(local) && err == nil; i += 2 {
				var text []byte
				if text, err = os.ReadFile(filepath.Join(j.dir, local[i])); err == nil {
					err = c.Stor(path.Join(site, local[i]), bytes.NewReader(text))
				}
			}
			uploads <- err
		}()
	}
	if err := errors.Join(<-uploads, <-uploads); err != nil {
		return err
	}
	for _, file := range remote {
		if !slices.Contains(local, strings.TrimPrefix(file, site+"/")) {
			if err := browse.Delete(file); err != nil {
				return err
			}
		}
	}
	for _, dir := range slices.Backward(dirs) {
		_ = browse.RemoveDir(dir) // one with files stays
	}
	return nil
}

// listTree returns the files and directories below a directory, each directory before its content.
func listTree(c *ftp.ServerConn, dir string) (files, dirs []string, err error) {
	entries, err := c.List(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name)
		switch {
		case e.Name == "." || e.Name == "..":
		case e.Type == ftp.EntryTypeFolder:
			below, nested, err := listTree(c, name)
			if err != nil {
				return nil, nil, err
			}
			files, dirs = append(files, below...), append(append(dirs, name), nested...)
		default:
			files = append(files, name)
		}
	}
	return files, dirs, nil
}

// refused reports whether the error is a 550 that contains the text, or vsftpd's 550 without a reason.
func refused(err error, text string) bool {
	var reply *textproto.Error
	return errors.As(err, &reply) && reply.Code == 550 && (strings.Contains(reply.Msg, text) || strings.HasPrefix(reply.Msg, "Failed to open file") || strings.HasPrefix(reply.Msg, "Delete operation failed"))
}

// exist reports whether a MKD failed because the directory exists.
func exist(err error) bool {
	return refused(err, "already") || err != nil && strings.Contains(err.Error(), "Create directory operation failed")
}

// localFiles returns the files below a directory in order, without names that have a leading dot.
func localFiles(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name != dir && strings.HasPrefix(e.Name(), ".") {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if !e.IsDir() {
			file, err := filepath.Rel(dir, name)
			files = append(files, filepath.ToSlash(file))
			return err
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// outcome is the end of a job.
type outcome struct {
	err error
	out string
}

// deploy runs the program once.
func (p program) deploy(ctx context.Context, t testing.TB, j *job) outcome {
	if p.imitate != nil {
		err := p.imitate(ctx, j)
		return outcome{err, fmt.Sprint(err)}
	}
	line := p.command(t, j)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir, cmd.WaitDelay = j.dir, 5*time.Second
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.Env = append(harness.Environment(), "HOME="+j.home, "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	return outcome{err, string(out)}
}
