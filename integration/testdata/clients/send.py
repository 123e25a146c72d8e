# Uploads its standard input; SIGINT aborts the upload.
# usage: send.py host port user password A|I path
import ftplib, signal, sys

host, port, user, password, kind, path = sys.argv[1:]
ftp = ftplib.FTP()
ftp.connect(host, int(port), timeout=20)
ftp.login(user, password)
ftp.voidcmd('TYPE ' + kind)
data = ftp.transfercmd('STOR ' + path)
stop = []
signal.signal(signal.SIGINT, lambda *_: stop.append(1))
while not stop:
    piece = sys.stdin.buffer.read1(8192)
    if not piece:
        break
    data.sendall(piece)
if stop:
    print('told', ftp.abort())
    data.close()
    print('told', ftp.getresp())
    print(ftp.pwd())
    ftp.quit()
    sys.exit(3)
data.close()
ftp.voidresp()
ftp.quit()
