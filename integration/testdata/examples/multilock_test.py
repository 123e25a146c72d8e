"""The features of examples/python-multilock. Each test has a group of its own."""
import ftplib
import os
import sys
import time
import traceback
import unittest

sys.path.insert(0, os.environ['EXAMPLES'] + '/python-multilock')
from multilock import MultiLock, MultiLockDenied, MultiLockLost, MultiLockTimeout


def enter(lock):
    with lock:
        pass


def fork(job):
    child = os.fork()
    if child == 0:
        try:
            job()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Features(unittest.TestCase):
    def setUp(self):
        self.a, self.b = self.lock('spam'), self.lock('spam')

    def lock(self, name, **more):
        return MultiLock(name, self._testMethodName, **more)

    def test_with_acquires_or_names_the_holder_and_releases(self):
        a, b = self.a, self.b
        with a as same:
            assert same is a and a.verify()
            with self.assertRaisesRegex(MultiLockDenied, 'held by phoneacc@127.0.0.1 for '):
                enter(b)
            self.assertRegex(b.holder(), '^held by phoneacc@127.0.0.1 for ')
        enter(b)
        with self.assertRaises(ZeroDivisionError), a:
            1/0
        self.assertEqual(b.holder(), '')
        enter(b)

    def test_acquire_and_release_report_success(self):
        a, b = self.a, self.b
        assert not a.release() and a.reason == 'not acquired'
        assert a.acquire()
        assert a.acquire(), 'it has it already'
        assert a.verify() and not b.verify()
        assert not b.acquire() and 'held by phoneacc@' in b.reason, b.reason
        assert not b.release() and a.verify()
        assert a.release() and not a.release()
        assert b.acquire()

    def test_the_server_ends_a_lock_at_its_maxage(self):
        a, b = self.a, self.b
        assert a.acquire(maxage=1)
        first = a.token
        assert b.acquire(timeout=10), b.reason
        assert b.token > first > 0
        assert not a.release() and 'taken away' in a.reason and 'older than 1s' in a.reason, a.reason
        assert b.verify(), 'the late release has released the lock of another one'

    def test_verify_and_the_end_of_with_report_a_lost_lock(self):
        a, b = self.a, self.b
        with self.assertRaisesRegex(MultiLockLost, 'older than 3s'), a:
            a.release()
            a.acquire(maxage=3)
            assert a.verify()
            assert b.acquire(timeout=10)
            b.release()
        assert a.acquire(maxage=1) and b.acquire(timeout=10)
        assert not a.verify() and b.verify()

    def test_acquire_waits_until_its_timeout(self):
        assert self.a.acquire()
        before = time.monotonic()
        assert not self.b.acquire(timeout=1)
        assert time.monotonic() - before >= 1

    def test_wait_ends_with_the_last_member_of_a_group(self):
        members = [self.lock('job%d' % n) for n in range(5)]
        for m in members:
            assert m.acquire(), m.reason
        with self.assertRaises(MultiLockTimeout):
            self.lock('any').wait(1)
        r, w = os.pipe()

        def dies():
            lock = self.lock('dies')
            assert lock.acquire()
            os.read(r, 1)

        child, watch = fork(dies), self.lock('dies')
        while not watch.holder():
            time.sleep(0.01)
        for m in members:
            m.release()
        with self.assertRaises(MultiLockTimeout):
            self.lock('any').wait(0)
        os.write(w, b'.')
        self.lock('any').wait(20)
        self.assertEqual(status(child), 0)
        self.assertEqual(self.a._tokens(self.a.group), set())
        self.lock('any').wait(0)  # there is no such group: it is complete
        assert self.a.acquire(), 'the group is made again'

    def test_the_last_member_that_is_released_ends_the_group(self):
        a, other = self.a, self.lock('other')
        assert a.acquire() and other.acquire()
        assert a.release() and a.reason, a.reason
        assert a._tokens(a.group), 'it has another member'
        assert other.release()
        self.assertEqual(a._tokens(a.group), set())

    def test_processes_create_and_end_a_group_at_once(self):
        def work():
            for _ in range(10):
                mine = self.lock('job%d' % os.getpid())
                assert mine.acquire(), mine.reason  # nobody else wants it
                assert mine.verify()
                assert mine.release(), mine.reason
                self.lock('any').wait(20)

        children = [fork(work) for _ in range(6)]
        self.assertEqual([status(child) for child in children], [0] * 6)

    def test_nohup_outlives_the_object(self):
        assert self.lock('kept', nohup=True).acquire()
        assert not self.lock('kept').acquire() and not self.lock('kept').release()
        other = self.lock('kept', nohup=True)
        assert not other.acquire()
        while not other.release():  # until the server detects the end of the first connection
            time.sleep(0.1)
        assert self.lock('kept').acquire(timeout=10)

    def test_the_end_of_the_object_releases_the_lock(self):
        assert self.a.acquire()
        del self.a
        assert self.b.acquire(timeout=10), self.b.reason

    def test_a_child_process_neither_releases_nor_uses_the_lock(self):
        assert self.a.acquire()

        def child():
            try:
                self.a.release()
            except RuntimeError:
                del self.a
                os._exit(7)

        self.assertEqual(status(fork(child)), 7)
        assert not self.b.acquire(), 'the child has released it'
        assert self.a.release(), self.a.reason

    def test_a_failed_job_is_not_done(self):
        done = []
        with self.assertRaises(ZeroDivisionError):
            self.a.once(lambda: 1/0)
        assert self.a.once(lambda: done.append(1)) and not self.b.once(lambda: done.append(2)) and done == [1]

    def test_an_idle_connection_is_replaced(self):
        a = self.a
        assert a.acquire() and a.release()
        a.wait(0)  # the server does not close a connection that may release the lock of the group
        time.sleep(3)
        assert a.acquire() and a.release()

    def test_the_constructor_has_settings(self):
        here, os.environ['FTP_HOST'] = os.environ['FTP_HOST'], 'unused.invalid'
        self.addCleanup(os.environ.update, FTP_HOST=here)
        c = self.lock('spam', host=here, port=os.environ['FTP_PORT'], user='other', password='secret')
        assert c.acquire()
        self.assertRegex(c.holder(), 'held by other@')
        c.release()
        self.assertRaises(ftplib.error_perm, self.lock('spam', host=here, password='wrong').acquire)
        self.assertRaises(ValueError, self.lock, 'a/b')
        self.assertRaises(ValueError, self.lock, 'a\r\nRMD b')


if __name__ == '__main__':
    unittest.main()
