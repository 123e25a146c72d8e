package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// lftpDeployment returns the commands of one lftp that deploys a directory under a lock, over so many connections.
func lftpDeployment(lock string, parallel int, from, to string) string {
	return fmt.Sprintf("mkdir %s; mirror -R --parallel=%d %s %s; rmdir %s", lock, parallel, from, to, lock)
}

// site makes a directory with some files.
func site(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 8 {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("page%d.html", i)), []byte(sitePage))
	}
	return dir
}

var sitePage = strings.Repeat("page\n", 2000)

// eachParallel runs a test with one to four connections.
func eachParallel(t *testing.T, f func(t *testing.T, parallel int)) {
	t.Helper()
	harness.Need(t, "lftp")
	for parallel := 1; parallel <= 4; parallel++ {
		t.Run(fmt.Sprintf("parallel=%d", parallel), func(t *testing.T) { f(t, parallel) })
	}
}

// lftp sends RMD over any of its connections.
func TestLftpMirrorReleasesItsLock(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	from := site(t)
	eachParallel(t, func(t *testing.T, parallel int) {
		for i := range count(4, 20) {
			to := fmt.Sprintf("/site%d.%d", parallel, i)
			mustRun(t, "lftp", "-c", lftpOpen(s.v4, false)+lftpDeployment("/locks/deploy", parallel, from, to))
			if s.exists("/locks/deploy") {
				t.Fatalf("run %d: the lock is still held", i)
			}
			wantFile(t, s.path(to+"/page7.html"), sitePage)
		}
	})
}

// Another runner of the account on the same machine does not release the lock of the first one, whose connection lives: one that
// does nothing but the RMD, and one that was refused the lock and deploys all the same.
func TestAnotherLftpReleasesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, defaults)
	from := site(t)
	open := strings.Replace(lftpOpen(s.v4, false), "cmd:fail-exit yes", "cmd:fail-exit no", 1)
	eachParallel(t, func(t *testing.T, parallel int) {
		for i := range count(2, 20) {
			holder := s.session(account)
			holder.Want(257, "MKD /locks/deploy")
			to := fmt.Sprintf("/site%d.%d", parallel, i)
			for _, commands := range []string{"rmdir /locks/deploy", lftpDeployment("/locks/deploy", parallel, from, to)} {
				if r := run(t, "lftp", "-c", open+commands); !strings.Contains(r.out, "550") {
					t.Errorf("run %d: no refusal of %q:\n%s", i, commands, r.out)
				}
			}
			wantFile(t, s.path(to+"/page7.html"), sitePage)
			holder.Want(250, "RMD /locks/deploy")
			holder.Conn.Close()
		}
	})
}
