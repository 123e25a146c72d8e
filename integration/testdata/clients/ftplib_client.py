# What a client does with locks and files, with ftplib. The environment says where and how; see clients_test.go.
import ftplib, io, os, ssl

env = os.environ
ascii_type = env['FTP_TYPE'] == 'A'

def session():
    if env['FTP_TLS'] == '1':
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        ftp = ftplib.FTP_TLS(context=context)
    else:
        ftp = ftplib.FTP()
    ftp.connect(env['FTP_HOST'], int(env['FTP_PORT']), timeout=20)
    ftp.set_pasv(env['FTP_PASSIVE'] == '1')
    ftp.login(env['FTP_USER'], env['FTP_PASSWORD'])
    if env['FTP_TLS'] == '1':
        ftp.prot_p()
    return ftp

def refused(operation):
    try:
        operation()
    except ftplib.error_perm as e:
        return str(e)
    raise SystemExit('not refused')

def put(ftp, name):
    with open(env['LOCAL'] + '/up', 'rb') as f:
        (ftp.storlines if ascii_type else ftp.storbinary)('STOR ' + name, f)

one, two = session(), session()
lock = env['FTP_DIR'] + '/phone_lock'
assert one.mkd(lock) == lock
print('refused:', refused(lambda: two.mkd(lock)))
refused(lambda: two.rmd(lock))
one.rmd(lock)
assert two.mkd(lock) == lock
two.rmd(lock)

one.cwd(env['FTP_DIR'])
put(one, 'first')
assert 'first' in one.nlst()
assert 'first' in [name for name, facts in one.mlsd()]
with open(env['LOCAL'] + '/down', 'wb') as f:
    if ascii_type:
        one.encoding = 'latin-1'
        one.retrlines('RETR first', lambda line: f.write(line.encode('latin-1') + b'\n'))
    else:
        one.retrbinary('RETR first', f.write)
one.rename('first', 'kept')
put(one, 'gone')
one.delete('gone')
one.quit()
two.quit()
