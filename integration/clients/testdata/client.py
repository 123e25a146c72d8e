# The job of a client, with ftplib; see matrix_test.go.
import ftplib, os, socket, ssl

env = os.environ

class Client(ftplib.FTP_TLS):
    def connect_implicit(self, host, port=990, timeout=30):
        self.host, self.port, self.timeout = host, port, timeout
        self.sock = self.context.wrap_socket(socket.create_connection((host, port), timeout), server_hostname=host)
        self.af = self.sock.family
        self.file = self.sock.makefile('r', encoding=self.encoding)
        self.welcome = self.getresp()

    def ntransfercmd(self, cmd, rest=None):  # its data connections resume the session
        data, size = ftplib.FTP.ntransfercmd(self, cmd, rest)
        return self.context.wrap_socket(data, server_hostname=self.host, session=self.sock.session), size

if env['FTP_TLS']:
    context = ssl.create_default_context(cafile=env['FTP_CA'])
    if env['FTP_VERSION'] == '1.2':
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    ftp = Client(context=context)
else:
    ftp = ftplib.FTP(encoding='latin-1')
ascii_type = env['FTP_TYPE'] == 'A'
(ftp.connect_implicit if env.get('FTP_IMPLICIT') else ftp.connect)(env['FTP_HOST'], int(env['FTP_PORT']), timeout=30)
ftp.set_pasv(env['FTP_PASSIVE'] == '1')
ftp.login(env['FTP_USER'], env['FTP_PASSWORD'])
if env['FTP_TLS']:
    ftp.prot_p()

assert ftp.mkd('mine_lock') == '/mine_lock'
try:
    ftp.mkd('taken_lock')
except ftplib.error_perm as e:
    print('refused:', e)
for name, local in ('file', 'one'), ('file', 'two'), ('gone', 'one'):
    with open(local, 'rb') as f:
        (ftp.storlines if ascii_type else ftp.storbinary)('STOR ' + name, f)
with open('down', 'wb') as f:
    if ascii_type:
        ftp.retrlines('RETR file', lambda line: f.write(line.encode('latin-1') + b'\n'))
    else:
        ftp.retrbinary('RETR file', f.write)
print('listed:', ftp.nlst())
assert 'file' in [name for name, facts in ftp.mlsd()]
ftp.rename('gone', 'kept')
ftp.delete('kept')
ftp.rmd('mine_lock')
ftp.quit()
