# Counts a number in a file up under a lock, and says each step, so that it can be killed there.
# usage: counter.py host port user password times
import ftplib, io, sys, time

host, port, user, password, times = sys.argv[1:]

def say(*words):
    print(*words, flush=True)

ftp = ftplib.FTP()
ftp.connect(host, int(port), timeout=20)
ftp.login(user, password)
for n in range(int(times)):
    while True:
        try:
            ftp.mkd('/locks/counter')
            break
        except ftplib.error_perm:
            time.sleep(0.005)
    say('locked')
    got = io.BytesIO()
    ftp.retrbinary('RETR counter', got.write)
    value = int(got.getvalue()) + 1
    say('read')
    ftp.voidcmd('TYPE I')
    data = ftp.transfercmd('STOR counter')
    say('opened')
    data.sendall(b'%020d' % value)
    say('sent')
    data.close()
    ftp.voidresp()
    say('stored', value)
    ftp.rmd('/locks/counter')
    say('released')
ftp.quit()
