# What the Python programs of this directory share; common.sh says what is in the environment. FTP_TLS asks for TLS.
import ftplib, io, os, ssl, sys, time

base, me, pause = os.environ['BASE'], os.environ['ID'], float(os.environ['PAUSE'])
text = open(os.path.join(os.environ['LOCAL'], 'index'), 'rb').read()


def connect():
    ftp = ftplib.FTP()
    if os.environ.get('FTP_TLS'):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        ftp = ftplib.FTP_TLS(context=context)
    ftp.connect(os.environ['FTP_HOST'], int(os.environ['FTP_PORT']), timeout=20)
    ftp.login(os.environ['FTP_USER'], os.environ['FTP_PASSWORD'])
    if os.environ.get('FTP_TLS'):
        ftp.prot_p()
    return ftp


def step(name):
    print('step', name, flush=True)
    if os.environ.get('STOP_AT') == name:
        time.sleep(600)


def witness(word):
    fd = os.open(os.environ['WITNESS'], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, ('%s %s\n' % (word, me)).encode())
    os.close(fd)


def store(ftp, path):
    ftp.storbinary('STOR ' + path, io.BytesIO(text))


def refused(ftp, command):
    """Whether the server says 5xx to a command."""
    try:
        ftp.voidcmd(command)
    except ftplib.error_perm:
        return True
    return False


tries = 0


def again():
    global tries
    tries += 1
    if tries >= 150:
        sys.exit(75)
    time.sleep(pause)
