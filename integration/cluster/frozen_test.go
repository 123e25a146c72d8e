//go:build linux

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// frozenDisk mounts a file system of its own, and returns its directory and functions that freeze and thaw it: while it is frozen, writes hang
// in the kernel, and reads are answered. At the end of the test nothing of it is left. It needs root and a loop device.
func frozenDisk(t *testing.T) (dir string, freeze, thaw func()) {
	t.Helper()
	harness.Need(t, "mkfs.ext4", "fsfreeze")
	image := filepath.Join(t.TempDir(), "image")
	dir = t.TempDir()
	command(t, "truncate", "--size", "32M", image)
	command(t, "mkfs.ext4", "-q", image)
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("this needs root and a loop device: %v: %s", err, out)
	}
	thaw = func() { _ = exec.Command("fsfreeze", "--unfreeze", dir).Run() } // it fails if nothing is frozen
	// This process also cleans up if the test is killed: then its input ends.
	cleaner := exec.Command("sh", "-c", `cat; fsfreeze --unfreeze "$0" 2>/dev/null; umount "$0" || umount --lazy "$0"`, dir)
	cleaner.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end, err := cleaner.StdinPipe()
	if err == nil {
		err = cleaner.Start()
	}
	if err != nil {
		t.Fatal(err, exec.Command("umount", dir).Run())
	}
	t.Cleanup(func() {
		end.Close()
		if err := cleaner.Wait(); err != nil {
			t.Errorf("umount: %v", err)
		}
	})
	return dir, func() { t.Helper(); command(t, "fsfreeze", "--freeze", dir) }, thaw
}

// The file system of the active server hangs in writes, as it does when its disk or its NFS server is gone. Another server takes over, also while an
// upload hangs.
func TestAFileSystemThatHangsCausesAFailover(t *testing.T) {
	t.Parallel()
	for name, uploading := range map[string]bool{"idle": false, "an upload hangs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			how := setup{tables: hour, ttl: 2 * time.Second}
			dir, freeze, thaw := frozenDisk(t)
			c := prepare(t, how)
			root, shared := filepath.Join(dir, "files"), filepath.Join(dir, "shared")
			for _, d := range []string{root, shared} {
				if err := os.Mkdir(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			a, b := c.servers[0], c.servers[1]
			a.configure(root, shared, how)
			a.supervise()
			s := c.session(t, account)
			s.Want(257, "MKD /first")
			b.supervise()
			a.shows(t, standsBy)
			var upload func() error
			if uploading {
				data, err := s.Open("STOR /first/file")
				if err != nil {
					t.Fatal(err)
				}
				upload = data.Close
			}
			freeze()
			began := time.Now()
			if upload != nil {
				if err := upload(); err != nil {
					t.Fatal(err)
				}
			}
			harness.Await(t, "the server is not ready", func() bool {
				r := a.get("/readyz")
				return r.Code == 503 && strings.Contains(r.Text, "not answer")
			})
			t.Logf("not ready after %v", time.Since(began))
			c.grants(t, c.others(a))
			t.Logf("another server grants after %v", time.Since(began))
			next, err := harness.Login(nil, b.address, account, 0)
			if err != nil {
				t.Fatal(err)
			}
			next.T = t
			defer next.Conn.Close()
			next.Want(550, "MKD /first") // still held
			thaw()
			a.shows(t, standsBy)
		})
	}
}
