package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/integration/peers"
)

// The programs of the article work with any FTP server. The accounts of these servers may write below /pub only, so the programs use that.
func TestPerlPhoneListProgramsWorkWithOtherServers(t *testing.T) {
	t.Parallel()
	harness.Need(t, "perl")
	for _, name := range peers.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPeer(t, name, false)
			o, dir := newObserver(t, "Net::FTP::mkdir Net::FTP::rmdir"), t.TempDir()
			var crowd []*exec.Cmd
			for i := range 8 {
				list := filepath.Join(dir, fmt.Sprint("boss", i))
				writeFile(t, list, []byte(phoneList(filepath.Base(list))))
				cmd := perlExample(t, p.Address, p.User, p.Password, "perl-netlock/uploader.pl", list, "0.05")
				if i%2 == 1 {
					cmd = perlExample(t, p.Address, p.User, p.Password, "perl-netlock/downloader.pl", list, "0.05")
				}
				cmd.Env = append(cmd.Env, "OBSERVE_DIR=/pub")
				crowd = append(crowd, cmd)
			}
			for _, r := range o.crowd(t, crowd[:1], func() {}) { // there has to be a list
				if r.status != 0 {
					t.Fatal(r.out)
				}
			}
			for i, r := range o.crowd(t, crowd[1:], func() {}) {
				if r.status != 0 {
					t.Errorf("%v: exit status %d: %s", crowd[i+1].Args[1:], r.status, r.out)
				}
			}
			o.check(8)
			for i := range 8 {
				if got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("boss", i))); err != nil || !wholeList(string(got)) {
					t.Errorf("%d bytes, not one list: %v", len(got), err)
				}
			}
		})
	}
}

// phpElsewhere counts in a file of an FTP server that is no lock server, under a mutex that has to ask again and again.
const phpElsewhere = `
require $argv[1];
$mutex = new NamedMutex('counter', ['directory' => '/pub']);
for ($i = 0; $i < 3; $i++) {
	$mutex->lock() or exit($mutex->reason() . "\n");
	$ftp = $mutex->connection();
	ftp_fget($ftp, $file = tmpfile(), '/pub/counter.txt', FTP_BINARY) or exit("download\n");
	$number = stream_get_contents($file, null, 0) + 1;
	usleep(5000);
	fwrite($next = tmpfile(), "$number") and rewind($next);
	ftp_fput($ftp, '/pub/counter.txt', $next, FTP_BINARY) or exit("upload\n");
	$mutex->lock(false) && $mutex->unlock() && $mutex->count() === 1 or exit("count\n");
	$mutex->unlock() or exit($mutex->reason() . "\n");
}
$other = new NamedMutex('other', ['directory' => '/pub']);
if ($other->lock(false)) {
	(new NamedMutex('other', ['directory' => '/pub']))->lock(1) and exit("two at once\n");
	$other->unlock();
}
`

func TestPHPMutexWorksWithOtherServers(t *testing.T) {
	t.Parallel()
	harness.Need(t, "php")
	class := exampleFile(t, "php-mutex/NamedMutex.php")
	for _, name := range peers.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPeer(t, name, false)
			counter := filepath.Join(p.Root, "pub", "counter.txt")
			if err := os.WriteFile(counter, []byte("0"), 0o666); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(counter, 0o666); err != nil { // whatever the umask is
				t.Fatal(err)
			}
			host, port := split(p.Address)
			var all sync.WaitGroup
			for range 4 {
				cmd := command(t, "php", "-r", phpElsewhere, "--", class)
				cmd.Env = append(cmd.Env, "FTP_HOST="+host, "FTP_PORT="+port, "FTP_USER="+p.User, "FTP_PASSWORD="+p.Password)
				all.Go(func() {
					if r := finish(t, cmd); r.status != 0 || r.out != "" {
						t.Errorf("exit status %d: %s", r.status, r.out)
					}
				})
			}
			all.Wait()
			if got, err := os.ReadFile(counter); err != nil || strings.TrimSpace(string(got)) != "12" {
				t.Errorf("the counter is %q, %v", got, err)
			}
		})
	}
}
