# Uploads or downloads a file under a lock, some rounds, and logs when it has the lock.
# usage: worker.py host port user password id up|down rounds log
import ftplib, io, os, sys, time

host, port, user, password, name, role, rounds, log = sys.argv[1:]
log = os.open(log, os.O_WRONLY | os.O_APPEND)

def note(word):
    os.write(log, ('%s %s\n' % (word, name)).encode())

ftp = ftplib.FTP()
ftp.connect(host, int(port), timeout=20)
ftp.login(user, password)
for n in range(int(rounds)):
    while True:
        try:
            ftp.mkd('phone_lock')
            break
        except ftplib.error_perm:
            time.sleep(0.01)
    note('begin')
    if role == 'up':
        ftp.storbinary('STOR phone.' + name, io.BytesIO(('%s-%d\n' % (name, n)).encode() * 4000))
        ftp.delete('phone.tsv')
        ftp.rename('phone.' + name, 'phone.tsv')
    else:
        got = io.BytesIO()
        ftp.retrbinary('RETR phone.tsv', got.write)
        lines = got.getvalue().splitlines()
        assert len(lines) == 4000 and len(set(lines)) == 1, 'torn'
    note('end')
    ftp.rmd('phone_lock')
ftp.quit()
