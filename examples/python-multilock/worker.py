"""One of several workers, which prints each of its steps.

usage: worker.py count [times [seconds of work each time [longest time that the lock may last]]]
           adds one to the number in counter.txt on the server
       worker.py once [seconds of work]
           writes report.txt on the server, if no worker has done so before
"""
import ftplib
import io
import os
import sys
import time

from multilock import MultiLock, MultiLockDenied, MultiLockLost


def say(*words):
    # One write for each line, so that the lines of several workers do not mix.
    os.write(1, (' '.join(str(word) for word in words) + '\n').encode())


def count(times=1, work=0, maxage=600):
    lock = MultiLock('counter')
    for _ in range(int(times)):
        lock.acquire(maxage=int(maxage), timeout=None)
        with lock:
            say('begin', os.getpid())
            content = io.BytesIO()
            if 'counter.txt' in lock.ftp.nlst():
                lock.ftp.retrbinary('RETR counter.txt', content.write)
            time.sleep(float(work))
            number = int(content.getvalue() or 0) + 1
            lock.ftp.storbinary('STOR counter.txt', io.BytesIO(b'%d\n' % number))
            say('end', os.getpid(), number)


def once(work=0):
    lock = MultiLock('report')

    def report():
        say('begin', os.getpid())
        time.sleep(float(work))
        text = 'made by %d\n' % os.getpid()
        lock.ftp.storbinary('STOR report.txt', io.BytesIO(text.encode()))
        say('end', os.getpid(), 1)

    if not lock.once(report):
        say('done already')


def main(arguments):
    jobs = {'count': (count, 3), 'once': (once, 1)}
    try:
        job, most = jobs[arguments[0]]
        numbers = [float(word) for word in arguments[1:]]
    except (IndexError, KeyError, ValueError):
        sys.exit('usage: worker.py count [times [seconds [longest]]] | once [seconds]')
    if len(numbers) > most:
        sys.exit('worker.py: %s has %d arguments at most' % (arguments[0], most))
    try:
        job(*numbers)
    except (MultiLockDenied, MultiLockLost, *ftplib.all_errors) as e:
        sys.exit('worker.py: %s' % e)


if __name__ == '__main__':
    main(sys.argv[1:])
