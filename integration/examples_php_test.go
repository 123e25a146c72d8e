package integration

import (
	"fmt"
	"testing"

	"github.com/ftplockd/ftplockd/integration/harness"
)

func TestPHPMutexCountsRightWhenAHolderIsKilled(t *testing.T) {
	t.Parallel()
	harness.Need(t, "php")
	countsRight(t, "php-mutex", "/locks/counter", "php", exampleFile(t, "php-mutex/counter.php"))
}

// phpPrelude makes two mutexes of one name, and a function that ends the program if something is not so.
const phpPrelude = `
require $argv[1];
function check(bool $ok, mixed $what = '') { if (!$ok) { echo 'line ', debug_backtrace()[0]['line'], ': ', $what, "\n"; exit(1); } }
[$a, $b] = [new NamedMutex($argv[2]), new NamedMutex($argv[2])];
`

// phpFeatures are what the mutex promises, each shown by a program.
var phpFeatures = []struct{ name, program string }{
	{"one of two has it, and the other is told who", `
		check($a->lock(false));
		$before = microtime(true);
		check(!$b->lock(false));
		check(microtime(true) - $before < 5);
		check(str_contains($b->reason(), 'held by phoneacc@127.0.0.1 for '), $b->reason());
		check($a->unlock());
		check($b->lock(false) && $b->unlock());`},
	{"lock with a number waits so many seconds and no longer", `
		check($a->lock());
		$before = microtime(true);
		check(!$b->lock(1));
		$took = microtime(true) - $before;
		check($took >= 1 && $took < 10, $took);
		check(str_contains($b->reason(), 'waited 1s'), 'it has asked again and again');`},
	{"it is given back by as many unlocks as there were locks", `
		check($a->count() === 0 && !$a->unlock());
		check($a->lock() && $a->lock(false) && $a->lock(1) && $a->count() === 3);
		check($a->unlock() && $a->unlock() && $a->count() === 1);
		check(!$b->lock(false));
		check($a->unlock() && $a->count() === 0 && !$a->unlock());
		check($b->lock(false));`},
	{"the end of the object gives it back, however often it was taken", `
		check($a->lock() && $a->lock());
		unset($a);
		check($b->lock(false), $b->reason());`},
	{"the server ends what is older than maxlock, and the one that had it is told", `
		check($a->lock(true, 1));
		$first = $a->token();
		check($b->lock(10), $b->reason());
		check($b->token() > $first && $first > 0, "$first {$b->token()}");
		check(!$a->unlock());
		check(str_contains($a->reason(), 'taken away') && str_contains($a->reason(), 'older than 1s'), $a->reason());
		check($a->count() === 0);
		check($b->unlock(), 'the late unlock has given back what is not its own');`},
	{"a child process neither gives it back nor uses it", `
		check($a->lock());
		$child = pcntl_fork();
		if ($child === 0) {
			try { $a->unlock(); } catch (LogicException) { exit(7); }
			exit(8);
		}
		pcntl_waitpid($child, $status);
		check(pcntl_wexitstatus($status) === 7, pcntl_wexitstatus($status));
		check(!$b->lock(false), 'the child has given it back');
		check($a->unlock(), $a->reason());`},
	{"a connection that was idle for too long is made anew", `
		check($a->lock() && $a->unlock());
		sleep(3);
		check($a->lock() && $a->unlock());`},
	{"settings come from the constructor, too", `
		$c = new NamedMutex($argv[2], ['host' => getenv('FTP_HOST'), 'port' => getenv('FTP_PORT'), 'user' => 'other', 'password' => 'secret']);
		putenv('FTP_HOST=unused.invalid');
		check($c->lock(false));
		putenv('FTP_HOST=127.0.0.1');
		check(!$a->lock(false) && str_contains($a->reason(), 'held by other@'), $a->reason());`},
	{"a server that is not there is an exception, and so is a name that is none", `
		$c = new NamedMutex($argv[2], ['password' => 'wrong']);
		try { $c->lock(); check(false); } catch (NamedMutexException $e) { check(str_contains($e->getMessage(), 'login'), $e->getMessage()); }
		try { new NamedMutex("a/b\nRMD c"); check(false); } catch (InvalidArgumentException) {}`},
}

func TestPHPMutexFeatures(t *testing.T) {
	t.Parallel()
	harness.Need(t, "php")
	s := startServer(t, "[ftp]\nidle_timeout = \"2s\"\n[[lock]]\nmatch = \"/locks/**\"\nmax_age = \"1h\"\n")
	class := exampleFile(t, "php-mutex/NamedMutex.php")
	for i, f := range phpFeatures {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			cmd := s.exampleCommand(t, "php", "-r", phpPrelude+f.program, "--", class, fmt.Sprint("mutex", i))
			if r := finish(t, cmd); r.status != 0 || r.out != "" {
				t.Errorf("exit status %d: %s", r.status, r.out)
			}
			s.wantFree(t, fmt.Sprint("/locks/mutex", i)) // the end of the program has given it back
		})
	}
}
