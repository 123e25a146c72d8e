# 6. A media uploader. ftplib over TLS, one session: MLST of the lock must be 550 before its MKD and type=dir after.
from common import *

lock = '.editorial-upload-lock'
ftp = connect()
step('begin')
ftp.cwd(base)
while not refused(ftp, 'MLST ' + lock) or refused(ftp, 'MKD ' + lock):
    again()
witness('in')
step('locked')
if 'type=dir;' not in ftp.sendcmd('MLST ' + lock).lower():
    sys.exit('the lock is no directory')
step('upload')
store(ftp, 'film')
step('uploaded')
witness('out')
ftp.rmd(lock)
if os.environ.get('ALONE') and not refused(ftp, 'MLST ' + lock):
    sys.exit('the lock is still there')
step('unlocked')
ftp.quit()
