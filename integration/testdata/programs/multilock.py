# 5. MultiLock's recipe, over FTP: a directory for the group, one in it for the lock, a file in that with who has it, which gets
# its final name by a rename and is read to see whose it is. Its locks lie below /locks.
from common import *

name = 'index'
group = '/locks/' + os.path.basename(base)
lock = group + '/' + name
locked = lock + '/' + name + '.locked'
mine = '%s pid %d' % (me, os.getpid())


def whose():
    got = []
    try:
        ftp.retrlines('RETR ' + locked, got.append)
    except ftplib.error_perm:
        return ''
    return ''.join(got)


ftp = connect()
step('begin')
while True:
    refused(ftp, 'MKD ' + group)  # it may be there
    if not refused(ftp, 'MKD ' + lock):
        break
    again()
step('made')
ftp.storlines('STOR %s/%s.lock' % (lock, name), io.BytesIO(mine.encode() + b'\n'))
step('written')
ftp.rename('%s/%s.lock' % (lock, name), locked)
if whose() != mine:
    sys.exit('it is not ours')
witness('in')
step('locked')
step('upload')
store(ftp, base + '/index')
step('uploaded')
witness('out')
ftp.delete(locked)
step('emptied')
ftp.rmd(lock)
refused(ftp, 'RMD ' + group)  # if it is empty
step('unlocked')
ftp.quit()
