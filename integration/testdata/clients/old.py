# Uploads under a temporary name, locks, deletes the old file, renames, unlocks: as programs did before servers could do it.
# usage: old.py host port user password directory file
import ftplib, sys

host, port, user, password, directory, file = sys.argv[1:]
ftp = ftplib.FTP()
ftp.connect(host, int(port), timeout=20)
ftp.login(user, password)
ftp.cwd(directory)
with open(file, 'rb') as f:
    ftp.storbinary('STOR phone.tmp', f)
ftp.mkd('phone_lock')
ftp.delete('phone.tsv')
ftp.rename('phone.tmp', 'phone.tsv')
ftp.rmd('phone_lock')
ftp.quit()
