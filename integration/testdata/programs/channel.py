# 3. A package channel. ftplib, one session: goes to its directory, takes .lock, uploads packages and the index, gives it back.
from common import *

ftp = connect()
step('begin')
ftp.cwd(base)
while refused(ftp, 'MKD .lock'):
    again()
witness('in')
step('locked')
store(ftp, 'package-1')
step('upload')
store(ftp, 'package-2')
store(ftp, 'index')
step('uploaded')
witness('out')
ftp.rmd('.lock')
step('unlocked')
ftp.quit()
