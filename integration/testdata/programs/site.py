# 3. A site deployer. ftplib over TLS, one session: locks tmp/deploy.lock, uploads by temporary and rename into a staged
# directory, puts whole directories in place by rename, removes trees. After a 550 it finds out by CWD whether there is a lock.
from common import *


def remove_tree(path):
    for name, facts in list(ftp.mlsd(path)):
        if facts['type'] == 'dir':
            remove_tree(path + '/' + name)
        elif facts['type'] == 'file':
            ftp.delete(path + '/' + name)
    ftp.rmd(path)


ftp = connect()
step('begin')
ftp.cwd(base)
denied = 0
while refused(ftp, 'MKD tmp/deploy.lock'):
    if refused(ftp, 'CWD ' + base + '/tmp/deploy.lock'):
        denied += 1  # or it was given back just now
        if denied == 20:
            sys.exit('denied')
    else:
        denied = 0
        ftp.cwd(base)
    again()
witness('in')
step('locked')
for name, facts in list(ftp.mlsd('tmp')):  # what one that died has left
    if name.startswith(('staged-', 'public-backup-')):
        remove_tree('tmp/' + name)
staged, backup = 'tmp/staged-' + me, 'tmp/public-backup-' + me
ftp.mkd(staged)
ftp.mkd(staged + '/css')
step('upload')
for name in 'index.html', 'composer.lock', 'css/style.css':
    store(ftp, staged + '/' + name + '.part')
    ftp.rename(staged + '/' + name + '.part', staged + '/' + name)
step('staged')
there = 'public' in ftp.nlst()
if there:
    ftp.rename('public', backup)
step('between')
ftp.rename(staged, 'public')
step('swapped')
if there:
    remove_tree(backup)
step('cleaned')
witness('out')
ftp.rmd('tmp/deploy.lock')
step('unlocked')
ftp.quit()
