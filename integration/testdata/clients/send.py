# Uploads its standard input; SIGINT aborts the upload. FTP_TLS=1 in the environment asks for TLS.
# usage: send.py host port user password A|I path
import ftplib, os, signal, ssl, sys

host, port, user, password, kind, path = sys.argv[1:]
if os.environ.get('FTP_TLS') == '1':
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    ftp = ftplib.FTP_TLS(context=context)
else:
    ftp = ftplib.FTP()
ftp.connect(host, int(port), timeout=20)
ftp.login(user, password)
if os.environ.get('FTP_TLS') == '1':
    ftp.prot_p()
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
if isinstance(data, ssl.SSLSocket):
    data.unwrap()
data.close()
ftp.voidresp()
ftp.quit()
