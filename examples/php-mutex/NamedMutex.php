<?php
declare(strict_types=1);

/** The server cannot be reached, refused the login, or hung up. Whether a lock is held is then not known. */
final class NamedMutexException extends RuntimeException
{
}

/**
 * A mutex with a name, for programs on any number of machines: the directory /locks/NAME of an FTP server.
 *
 * It holds its lock from a lock() that returned true until as many calls of unlock(), the end of the object, or the end of
 * the lock on the server, where it lasts no longer than maxlock and the server's rule say. Only unlock() tells of that
 * last case, so maxlock should be well above the longest job.
 *
 * An object belongs to the process that made it: in a child of pcntl_fork() it does nothing.
 */
final class NamedMutex
{
    /** How long one command waits on the server, in seconds: less than the time limit of the connection. */
    private const SLICE = 30;
    private const TIMEOUT = 60;

    private readonly string $path;
    private readonly int $process;
    private ?FTP\Connection $ftp = null;
    private int $count = 0;
    private string $answer = '';
    private array $lines = []; // of the last reply

    /**
     * Nothing is sent before the first lock().
     *
     * @param string $name     letters, digits, ".", "_" and "-"
     * @param array  $settings host, port, user, password; what is missing comes from the environment: FTP_HOST, FTP_PORT,
     *                         FTP_USER and FTP_PASSWORD. directory: where the locks are, for servers without /locks
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
                // Nobody is left to be told. The server ends the lock by itself.
            }
        }
    }

    /**
     * Takes the lock, or counts once more if this object has it.
     *
     * @param bool|int $block   true: waits as long as it takes; false: tries once; a number: waits so many seconds
     * @param ?int     $maxlock the server ends the lock after so many seconds, if its rule does not end it sooner
     * @return bool whether this object has the lock; if not, reason() says who has
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
            $this->say($age); // servers hang up on connections that are idle for long
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
            usleep(random_int(50_000, 150_000)); // other servers do not let MKD wait
        }
    }

    /**
     * Undoes one lock(); the last one gives the lock back.
     *
     * @return bool false: there was nothing to undo, or the server had taken the lock away meanwhile, as reason() then says:
     *              another program may have worked at the same time
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

    /** How many calls of unlock() it takes to give the lock back; 0: this object does not have it. */
    public function count(): int
    {
        return $this->count;
    }

    /** The last reply of the server, such as "/locks/job: held by ftp@10.0.0.5 for 12s, expires in 5m48s". */
    public function reason(): string
    {
        return $this->answer;
    }

    /** The fencing token of the lock that this object has: greater than that of every lock before; 0 from other servers. */
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
     * The connection that holds the lock. Files that the lock protects on the server can be changed through this one only.
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
        if (!$lines || !preg_match('/\A(?!421)(\d{3}) (.*)/', end($lines), $reply)) { // 421: the server hangs up
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
