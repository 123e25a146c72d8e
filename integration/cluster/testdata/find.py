# Takes and gives back a lock with ftplib. The name "ftp.test" has the addresses of the environment (ADDRESSES), in this order.
# usage: find.py host port user password lock
import ftplib
import os
import socket
import sys

host, port, user, password, lock = sys.argv[1:]
resolve = socket.getaddrinfo


def several(name, *rest, **more):
    if name != "ftp.test":
        return resolve(name, *rest, **more)
    return [found for address in os.environ["ADDRESSES"].split() for found in resolve(address, *rest, **more)]


socket.getaddrinfo = several
ftp = ftplib.FTP()
ftp.connect(host, int(port), timeout=60)
ftp.login(user, password)
ftp.mkd(lock)
ftp.rmd(lock)
ftp.quit()
