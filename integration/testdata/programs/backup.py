# 5. A backup writer. ftplib over TLS, one session: on 550 or 521 it goes into the lock and asks where it is, to see that it is a
# lock and not a denial. While it works it says NOOP. It never takes a lock from anybody.
from common import *

lock = base + '/.platform-server-backup-writer-lock'
ftp = connect()
step('begin')
denied = 0
while True:
    try:
        ftp.mkd(lock)
        break
    except ftplib.error_perm as e:
        if str(e)[:3] not in ('550', '521'):
            raise
    if refused(ftp, 'CWD ' + lock):
        denied += 1  # or it was given back just now
        if denied == 20:
            sys.exit('denied')
    else:
        denied = 0
        if ftp.pwd() != lock:
            sys.exit('in ' + ftp.pwd())
        ftp.cwd('/')
    again()
witness('in')
step('locked')
for _ in range(3):
    time.sleep(float(os.environ.get('HOLD', '0')) / 3)
    ftp.voidcmd('NOOP')
step('upload')
store(ftp, base + '/backup-' + me)
store(ftp, base + '/latest')
step('uploaded')
ftp.voidcmd('NOOP')
witness('out')
ftp.rmd(lock)
step('unlocked')
ftp.quit()
