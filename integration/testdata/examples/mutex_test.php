<?php
// The features of examples/php-mutex. Each has two mutexes of one name, and releases the lock in the end.
require getenv('EXAMPLES') . '/php-mutex/NamedMutex.php';

$features = [
	'one of two has it, and the other names the holder' => function ($a, $b) {
		assert($a->lock(false));
		assert(!$b->lock(false) && str_contains($b->reason(), 'held by phoneacc@127.0.0.1 for '), $b->reason());
		assert($a->unlock() && $b->lock(false) && $b->unlock());
	},
	'lock with a number waits so many seconds' => function ($a, $b) {
		assert($a->lock());
		$before = microtime(true);
		assert(!$b->lock(1) && microtime(true) - $before >= 1);
		assert(str_contains($b->reason(), 'waited 1s'), 'it has asked again and again');
	},
	'as many unlocks as locks release it' => function ($a, $b) {
		assert($a->count() === 0 && !$a->unlock());
		assert($a->lock() && $a->lock(false) && $a->lock(1) && $a->count() === 3);
		assert($a->unlock() && $a->unlock() && $a->count() === 1);
		assert(!$b->lock(false));
		assert($a->unlock() && $a->count() === 0 && !$a->unlock());
		assert($b->lock(false));
	},
	'the end of the object releases it' => function ($a, $b) {
		assert($a->lock() && $a->lock());
		unset($a);
		assert($b->lock(false), $b->reason());
	},
	'the server ends a lock at its maxlock' => function ($a, $b) {
		assert($a->lock(true, 1));
		$first = $a->token();
		assert($b->lock(10), $b->reason());
		assert($b->token() > $first && $first > 0);
		assert(!$a->unlock());
		assert(str_contains($a->reason(), 'taken away') && str_contains($a->reason(), 'older than 1s'), $a->reason());
		assert($a->count() === 0);
		assert($b->unlock(), 'the late unlock has released the lock of another one');
	},
	'a child process neither releases nor uses it' => function ($a, $b) {
		assert($a->lock());
		$child = pcntl_fork();
		if ($child === 0) {
			try { $a->unlock(); } catch (LogicException) { exit(7); }
			exit(8);
		}
		pcntl_waitpid($child, $status);
		assert(pcntl_wexitstatus($status) === 7);
		assert(!$b->lock(false), 'the child has released it');
		assert($a->unlock(), $a->reason());
	},
	'an idle connection is replaced' => function ($a) {
		assert($a->lock() && $a->unlock());
		sleep(3);
		assert($a->lock() && $a->unlock());
	},
	'the constructor has settings' => function ($a, $b, $name) {
		$host = getenv('FTP_HOST');
		$c = new NamedMutex($name, ['host' => $host, 'port' => getenv('FTP_PORT'), 'user' => 'other', 'password' => 'secret']);
		putenv('FTP_HOST=unused.invalid');
		assert($c->lock(false));
		putenv("FTP_HOST=$host");
		assert(!$a->lock(false) && str_contains($a->reason(), 'held by other@'), $a->reason());
	},
	'a failed login and a wrong name are exceptions' => function ($a, $b, $name) {
		$c = new NamedMutex($name, ['password' => 'wrong']);
		try { $c->lock(); assert(false); } catch (NamedMutexException $e) { assert(str_contains($e->getMessage(), 'login'), $e->getMessage()); }
		try { new NamedMutex("a/b\nRMD c"); assert(false); } catch (InvalidArgumentException) {}
	},
];
foreach (array_keys($features) as $number => $title) {
	echo "$title\n";
	$name = "feature$number";
	$features[$title](new NamedMutex($name), new NamedMutex($name), $name);
	assert((new NamedMutex($name))->lock(false), 'the lock is left over');
}
