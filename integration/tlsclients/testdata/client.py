# The job of a client under TLS, with ftplib; see tlsclients_test.go. The class is the one in docs/clients.md.
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

context = ssl.create_default_context(cafile=env['FTP_CA'])
if env['FTP_VERSION'] == '1.2':
    context.maximum_version = ssl.TLSVersion.TLSv1_2
else:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
ftp = Client(context=context)
(ftp.connect_implicit if env.get('FTP_IMPLICIT') else ftp.connect)(env['FTP_HOST'], int(env['FTP_PORT']), timeout=30)
ftp.set_pasv(env['FTP_PASSIVE'] == '1')
ftp.login(env['FTP_USER'], env['FTP_PASSWORD'])
ftp.prot_p()

ftp.mkd('mine_lock')
try:
    ftp.mkd('taken_lock')
except ftplib.error_perm as e:
    print('refused:', e)
for name, local in ('file', 'one'), ('file', 'two'), ('gone', 'one'):
    with open(local, 'rb') as f:
        ftp.storbinary('STOR ' + name, f)
with open('down', 'wb') as f:
    ftp.retrbinary('RETR file', f.write)
print('listed:', ftp.nlst())
ftp.delete('gone')
ftp.rmd('mine_lock')
ftp.quit()
