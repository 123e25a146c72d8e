# Uploads its standard input: as one file, or, if a number is given, that many times what is in it.
# usage: put.py host port user password A|I path [times]
import ftplib, io, sys

host, port, user, password, kind, path = sys.argv[1:7]
times = int(sys.argv[7]) if len(sys.argv) > 7 else 0
text = sys.stdin.buffer.read() if times else b''
for n in range(1, (times or 1) + 1):
    ftp = ftplib.FTP()
    ftp.connect(host, int(port), timeout=20)
    ftp.login(user, password)
    store = ftp.storlines if kind == 'A' else ftp.storbinary
    if times:
        store('STOR %s.%d' % (path, n), io.BytesIO(text))
    else:
        store('STOR ' + path, sys.stdin.buffer)
    ftp.quit()
