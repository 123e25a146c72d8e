"""Locks, groups of parallel jobs, and jobs that run once, for any number of hosts, on ftplockd.

    with MultiLock('spam'):
        ...                                    # no other job holds spam

    eggs = MultiLock('eggs', group='breakfast')
    if eggs.acquire(maxage=60):
        ...                                    # one of several jobs that run at the same time
    MultiLock(group='breakfast').wait(3600)    # all members are released

    MultiLock('migrate').once(migrate)         # one of all callers runs it

A lock is the directory /locks/GROUP/NAME of the server. /locks/GROUP is a lock, too. The first member acquires it for all
members, and the group exists while it is held. The last member releases it; the server does not end it earlier.
"""
import contextlib
import ftplib
import math
import os
import re
import time


class MultiLockDenied(Exception):
    """Another job has the lock. The text has its holder."""


class MultiLockLost(Exception):
    """The server took the lock away while it was held. The text has the reason."""


class MultiLockTimeout(Exception):
    """The time was over before all members of the group were released."""


class MultiLock:
    """The lock NAME of a group. acquire() acquires it.

    host, port, user, password: of the server; by default from the environment: FTP_HOST, FTP_PORT, FTP_USER, FTP_PASSWORD.
    nohup: the lock outlives this object and its process, until an object with nohup releases it or it expires.

    An object belongs to the process that made it, and to one thread at a time. If a method raises one of
    ftplib.all_errors, the state of the lock is unknown: call verify().
    """

    SLICE = 30    # seconds that one command waits on the server
    TIMEOUT = 60  # the longest time until a reply, in seconds
    GROUP = 5     # the longest time for tries with a group that other jobs make and end, in seconds

    def __init__(self, name='lock', group='main', host=None, port=None, user=None, password=None, nohup=False):
        for word in (name, group):
            if not re.fullmatch(r'\w[\w.-]*', word, re.ASCII):
                raise ValueError('no name for a lock: %r' % word)
        self.ftp = self.token = None  # the connection; the fencing token of the lock while this object has it
        self.pid, self.nohup, self.reason = os.getpid(), nohup, ''  # reason: the last reply of the server
        self.name, self.group = name, '/locks/' + group
        self.path = self.group + '/' + name
        env = os.environ.get
        self.address = host or env('FTP_HOST') or '127.0.0.1', int(port or env('FTP_PORT') or 2121)
        self.account = user or env('FTP_USER') or 'ftp', password or env('FTP_PASSWORD') or ''

    def acquire(self, maxage=None, timeout=0):
        """Acquire the lock. Return True, or False with the holder in reason.

        maxage: the server ends the lock after this many seconds, if its rule does not end it earlier.
        timeout: wait for the lock this many seconds; None: without a limit; 0: not at all.
        """
        if self.token is not None and self.verify():
            return True
        self._connect()
        self.ftp.voidcmd('SITE LOCK AGE %d' % (maxage or 0))
        for _ in self._tries(timeout):
            if self._take() == 257:
                self.token = next((int(f['token']) for f in self._facts(self.path) if f['mine'] == 'session'), None)
                return self.token is not None
        return False

    def release(self):
        """Release the lock. Return True, or False if it was lost before, with the cause in reason."""
        if self.token is None and not self.nohup:
            self.reason = 'not acquired'
            return False
        self.token = None
        if self._say('RMD ' + self.path) != 250:
            return False
        self._ask('SITE WAIT 0')
        self._ask('RMD ' + self.group)  # refused unless this was the last member
        return True

    def verify(self):
        """Return whether this object still holds the lock."""
        self._connect()
        if self.token is not None and self.token not in self._tokens(self.path):
            self.token = None
        return self.token is not None

    def holder(self):
        """Return the holder of the lock, and since when and until when; '' if it is free."""
        self._connect()
        code, text = self._ask('SITE LOCK INFO ' + self.path)  # the first line is for people, then come the facts
        return text.split('\n')[1].strip() if code == 211 and '\n type=lock;' in text else ''

    def wait(self, timeout=86400):
        """Wait until all members of the group are released, and end the group. A missing group needs no wait."""
        self._connect()
        for _ in self._tries(timeout, 0.5):  # RMD does not wait on the server
            if self._say('RMD ' + self.group) == 250 or not self._tokens(self.group, 'SITE LOCKS %s/**'):
                return
        raise MultiLockTimeout('%s is not complete after %s seconds' % (self.group, timeout))

    def once(self, job, maxage=None, timeout=None):
        """Call job under the lock unless a worker did the job before, and return whether it was called.

        One of all workers calls it, and the others wait. If it fails, or its process dies, the next worker calls it.
        A lock of its own, NAME.done, records a finished job. No worker releases it, so it lasts as long as the rule for
        that name allows: for ever with max_age = "0" and max_idle = "0".
        """
        done = MultiLock(self.name + '.done', self.group.rpartition('/')[2], *self.address, *self.account, nohup=True)
        if not self.acquire(maxage, timeout):
            raise MultiLockDenied(self.reason)
        with self:
            if done.holder():
                return False
            job()
            if not done.acquire():
                raise MultiLockDenied(done.reason)
            return True

    def __enter__(self):
        if not self.acquire():
            raise MultiLockDenied(self.reason)
        return self

    def __exit__(self, kind, *_):
        if not self.release() and kind is None:
            raise MultiLockLost(self.reason)

    def __del__(self):
        if getattr(self, 'ftp', None) and self.pid == os.getpid():
            with contextlib.suppress(*ftplib.all_errors):  # the server ends the lock itself
                if self.token is not None and not self.nohup:
                    self.release()
                self.ftp.close()

    def _tries(self, timeout, pause=0.05):
        """Repeat a command that waits on the server until the time is over; at least once."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0, end - time.monotonic())
            self.ftp.voidcmd('SITE WAIT %d' % math.ceil(min(left, self.SLICE)))
            yield
            if time.monotonic() >= end:
                return
            time.sleep(pause)  # some refusals come at once, for example that of a limit

    def _take(self):
        """Send MKD, and make the group if it does not exist. Repeat this for a while, because the group can end meanwhile."""
        end = time.monotonic() + self.GROUP
        while True:
            code = self._say('MKD ' + self.path)
            if code != 550 or self._tokens(self.path) or time.monotonic() >= end:
                return code
            if not self._tokens(self.group):
                self._make_group()
            time.sleep(0.01)

    def _make_group(self):
        """Acquire the group's lock in a session that ends at once, so that each session of the account can release it."""
        with self._login() as ftp:
            with contextlib.suppress(ftplib.error_perm):  # another job made it first
                ftp.sendcmd('MKD ' + self.group)

    def _tokens(self, path, command='SITE LOCK INFO %s'):
        """Return the tokens of the holders of a lock."""
        return {int(facts['token']) for facts in self._facts(path, command)}

    def _facts(self, path, command='SITE LOCK INFO %s'):
        """Return the facts of each hold: " type=lock;token=42;mine=session; /locks/main/spam", in the form of RFC 3659."""
        code, text = self._ask(command % path)
        lines = [line.lstrip(' ').partition('; ')[0] for line in text.split('\n') if code == 211]
        return [dict(fact.split('=', 1) for fact in line.split(';')) for line in lines if line.startswith('type=lock;')]

    def _say(self, command):
        code, self.reason = self._ask(command)
        return code

    def _ask(self, command):
        if self.pid != os.getpid():
            raise RuntimeError('this lock belongs to another process')
        if self.ftp is None:
            self.ftp = self._login()
        try:
            text = self.ftp.sendcmd(command)
        except ftplib.Error as refused:
            text = str(refused)
        return int(text[:3]), text[4:]

    def _connect(self):
        """Connect again if the connection has ended: servers end idle connections."""
        try:
            if self._ask('NOOP')[0] == 200:
                return
        except (OSError, EOFError):
            pass
        self.ftp = self._login()

    def _login(self):
        ftp = ftplib.FTP()
        ftp.connect(*self.address, timeout=self.TIMEOUT)
        ftp.login(*self.account)
        return ftp
