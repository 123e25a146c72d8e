<?php
// Adds one to a number in a file on the server, under a mutex, and prints each step.
// From the environment: FTP_HOST, FTP_PORT, FTP_USER, FTP_PASSWORD.
// usage: php counter.php [times [seconds of work each time [largest age of the lock in seconds]]]
declare(strict_types=1);
require __DIR__ . '/NamedMutex.php';

[$times, $work, $maxlock] = [(int)($argv[1] ?? 1), (float)($argv[2] ?? 0), (int)($argv[3] ?? 600)];
$me = getmypid();

set_exception_handler(function (Throwable $e): void {
    fwrite(STDERR, 'counter.php: ' . $e->getMessage() . "\n");
    exit(1);
});
foreach (array_slice($argv, 1) as $number) {
    if (!is_numeric($number) || $number < 0) {
        fwrite(STDERR, "usage: php counter.php [times [seconds of work each time [longest time that the lock may last]]]\n");
        exit(64);
    }
}

$mutex = new NamedMutex('counter');
for ($i = 0; $i < $times; $i++) {
    $mutex->lock(true, $maxlock) or exit($mutex->reason() . "\n");
    echo "begin $me\n";
    $ftp = $mutex->connection();

    $file = fopen('php://memory', 'w+');
    $new = ftp_mdtm($ftp, 'counter.txt') === -1;
    $new or ftp_fget($ftp, $file, 'counter.txt', FTP_BINARY) or exit("the download was refused\n");
    rewind($file);
    $number = (int)stream_get_contents($file);
    usleep((int)($work * 1e6));
    $number++;
    ftruncate($file, 0);
    rewind($file);
    fwrite($file, "$number\n");
    rewind($file);
    ftp_fput($ftp, 'counter.txt', $file, FTP_BINARY) or exit("the upload was refused\n");

    echo "end $me $number\n";
    $mutex->unlock() or exit($mutex->reason() . "\n");
}
