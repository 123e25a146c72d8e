<?php
declare(strict_types=1);

/** The server cannot be reached, refused the login, or hung up. The state of a lock is then unknown. */
final class NamedMutexException extends RuntimeException
{
}

/**
 * A mutex with a name, for programs on any number of machines: the directory /locks/NAME of an FTP server.
 *
 * It holds its lock from a lock() that returned true until the same number of calls of unlock(), the end of the object, or
 * the end of the lock on the server, after maxlock or by the server's rule. Only unlock() reports that last case, so maxlock
 * should be well above the longest job.
 *
 * An object belongs to the process that made it: in a child of pcntl_fork() it does nothing.
 */
final class NamedMutex
{
    /** The seconds that one command waits on the server: less than the time limit of the connection. */
    private const SLICE = 30;
    private const TIMEOUT = 60;

    private readonly string $path;
    private readonly int $process;
    private ?FTP\Connection $ftp = null;
    private int $count = 0;
    private string $answer = '';
    private array $lines = []; // of the last reply

    /**
     * The first lock() connects to the server.
     *
     * @param string $name     letters, digits, ".", "_" and "-"
     * @param array  $settings host, port, user, password; missing ones come from the environment: FTP_HOST, FTP_PORT,
     *                         FTP_USER and FTP_PASSWORD. directory: the one with the locks, for servers without /locks
     */
    public function __construct(string $name, private array $settings = [])
    {
        if (!preg_match('/\A\w[\w.-]*\z/', $name)) {
            throw new InvalidArgumentException("no name for a mutex: $name");
        }
        $this->path = ($settings['directory'] ?? '/locks') . "/$name";
        $this->process = getmypid();
    }

    public function __destruct()
    {
        if ($this->count > 0 && $this->process === getmypid()) {
            $this->count = 1;
            try {
                $this->unlock();
            } catch (NamedMutexException) {
                // No caller is left to get the error. The server ends the lock itself.
            }
        }
    }

    /**
     * Acquires the lock, or counts once more if this object holds it.
     *
     * @param bool|int $block   true: waits without a limit; false: tries once; a number: waits that many seconds
     * @param ?int     $maxlock the server ends the lock after this many seconds, if its rule does not end it earlier
     * @return bool whether this object holds the lock; if not, reason() has the holder
     * @throws NamedMutexException
     */
    public function lock(bool|int $block = true, ?int $maxlock = null): bool
    {
        if ($this->count > 0) {
            $this->count++;
            return true;
        }
        $age = 'SITE LOCK AGE ' . ($maxlock ?? 0);
        try {
            $this->say($age);
        } catch (NamedMutexException) {
            $this->say($age); // servers end idle connections
        }
        $end = match ($block) { true => INF, false => 0.0, default => microtime(true) + $block };
        while (true) {
            $left = max(0.0, $end - microtime(true));
            $this->say('SITE WAIT ' . (int)min(self::SLICE, ceil($left)));
            $code = $this->say("MKD $this->path");
            if ($code === 257) {
                $this->count = 1;
                return true;
            }
            if ($code !== 550 || microtime(true) >= $end) {
                return false;
            }
            usleep(random_int(50_000, 150_000)); // on other servers MKD does not wait
        }
    }

    /**
     * Undoes one lock(); the last one releases the lock.
     *
     * @return bool false: there was nothing to undo, or the lock was lost meanwhile (see reason()), so another program may
     *              have worked at the same time
     * @throws NamedMutexException
     */
    public function unlock(): bool
    {
        if ($this->count === 0) {
            $this->answer = 'not locked';
            return false;
        }
        if (--$this->count > 0) {
            return true;
        }
        return $this->say("RMD $this->path") === 250;
    }

    /** The number of calls of unlock() until the lock is released; 0: this object does not hold it. */
    public function count(): int
    {
        return $this->count;
    }

    /** The last reply of the server, such as "/locks/job: held by ftp@10.0.0.5 for 12s, expires in 5m48s". */
    public function reason(): string
    {
        return $this->answer;
    }

    /** The fencing token of the held lock, greater than that of every earlier lock; 0 on other servers. */
    public function token(): int
    {
        $reason = $this->answer;
        $this->say("SITE LOCK INFO $this->path");
        $this->answer = $reason;
        foreach ($this->lines as $line) { // " type=lock;token=42;...;mine=session;... /locks/job": facts, in the form of RFC 3659
            if (preg_match('/^ type=lock;(?=\S*;mine=session;)(?:\S*;)?token=(\d+);/', $line, $found)) {
                return (int)$found[1];
            }
        }
        return 0;
    }

    /**
     * The connection that holds the lock. Only this one can change the files that the lock protects.
     *
     * @throws NamedMutexException
     */
    public function connection(): FTP\Connection
    {
        return $this->ftp ??= $this->connect();
    }

    /** Sends a command and returns the code of the reply. ftp_mkdir() would hide its text. */
    private function say(string $command): int
    {
        if ($this->process !== getmypid()) {
            throw new LogicException('this mutex belongs to another process');
        }
        $lines = @ftp_raw($this->connection(), $command);
        if (!$lines || !preg_match('/\A(?!421)(\d{3}) (.*)/', end($lines), $reply)) { // 421: the server ends the connection
            $this->ftp = null;
            $this->count = 0;
            throw new NamedMutexException("$command: the connection is lost");
        }
        $this->answer = $reply[2];
        $this->lines = $lines;
        return (int)$reply[1];
    }

    private function connect(): FTP\Connection
    {
        $setting = fn(string $name, string $otherwise) =>
            (string)($this->settings[$name] ?? (getenv('FTP_' . strtoupper($name)) ?: $otherwise));
        $host = $setting('host', '127.0.0.1');
        $ftp = @ftp_connect($host, (int)$setting('port', '2121'), self::TIMEOUT);
        if (!$ftp || !@ftp_login($ftp, $setting('user', 'ftp'), $setting('password', ''))) {
            throw new NamedMutexException("$host: " . ($ftp ? 'the login was refused' : 'no connection'));
        }
        ftp_pasv($ftp, true);
        return $ftp;
    }
}
