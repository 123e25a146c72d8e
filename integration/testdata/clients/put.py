# Uploads its standard input. FTP_TLS=1 in the environment asks for TLS.
# usage: put.py host port user password A|I path
import ftplib, os, ssl, sys

host, port, user, password, kind, path = sys.argv[1:]
tls = os.environ.get('FTP_TLS') == '1'
ftp = ftplib.FTP_TLS(context=ssl._create_unverified_context()) if tls else ftplib.FTP()
ftp.connect(host, int(port), timeout=20)
ftp.login(user, password)
if tls:
    ftp.prot_p()
store = ftp.storlines if kind == 'A' else ftp.storbinary
store('STOR ' + path, sys.stdin.buffer)
ftp.quit()
