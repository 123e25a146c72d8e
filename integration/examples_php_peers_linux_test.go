package integration

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/integration/peers"
)

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
