package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
	"github.com/ftplockd/ftplockd/integration/peers"
)

// onPeers runs a test with each other installed server. The test gets the file of a name in /pub, the only directory in which the account may write,
// and a function that runs programs at once, which must succeed and print nothing.
func onPeers(t *testing.T, program string, test func(t *testing.T, pub func(string) string, atOnce func(lines ...[]string))) {
	t.Parallel()
	harness.Need(t, program)
	for _, name := range peers.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startPeer(t, name, false)
			test(t, func(name string) string { return filepath.Join(p.Root, "pub", name) }, func(lines ...[]string) {
				var all sync.WaitGroup
				for _, line := range lines {
					cmd := command(t, program, line...)
					cmd.Env = append(cmd.Env, exampleEnv(p.Address, p.User, p.Password)...)
					cmd.Env = append(cmd.Env, "PERL5OPT=-I"+exampleFile(t, "../integration/testdata/examples")+" -MWrapped", "DIR=/pub")
					all.Go(func() {
						if r := finish(t, cmd); r.status != 0 || r.out != "" {
							t.Errorf("%q: exit status %d: %s", line, r.status, r.out)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// Half of the programs upload lists that differ in every line. Without the lock the others would download parts of them.
func TestPerlPhoneListProgramsWorkWithOtherServers(t *testing.T) {
	onPeers(t, "perl", func(t *testing.T, _ func(string) string, atOnce func(...[]string)) {
		list := func(who string) string { return strings.Repeat(who+"\t+49 221 4711\n", 20_000) }
		dir := t.TempDir()
		var crowd [][]string
		for i := range 4 {
			up, down := filepath.Join(dir, fmt.Sprint("boss", i)), filepath.Join(dir, fmt.Sprint("got", i))
			writeFile(t, up, []byte(list(filepath.Base(up))))
			crowd = append(crowd, []string{exampleFile(t, "perl-netlock/uploader.pl"), up, "0.05"}, []string{exampleFile(t, "perl-netlock/downloader.pl"), down, "0.05"})
		}
		atOnce(crowd[0]) // there has to be a list
		atOnce(crowd...)
		for i := range 4 {
			got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("got", i)))
			who, _, _ := strings.Cut(string(got), "\t")
			if err != nil || string(got) != list(who) {
				t.Errorf("%d bytes, not one list: %v", len(got), err)
			}
		}
	})
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
	onPeers(t, "php", func(t *testing.T, pub func(string) string, atOnce func(...[]string)) {
		counter := pub("counter.txt")
		writeFile(t, counter, []byte("0"))
		if err := os.Chmod(counter, 0o666); err != nil {
			t.Fatal(err)
		}
		line := []string{"-r", phpElsewhere, "--", exampleFile(t, "php-mutex/NamedMutex.php")}
		atOnce(line, line, line, line)
		if got, err := os.ReadFile(counter); err != nil || strings.TrimSpace(string(got)) != "12" {
			t.Errorf("the counter is %q, %v", got, err)
		}
	})
}
