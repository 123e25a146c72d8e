# The job of a client, with Net::FTP; see matrix_test.go.
use strict;
use warnings;
use Net::FTP;

my $ftp = Net::FTP->new(
    $ENV{FTP_HOST}, Port => $ENV{FTP_PORT}, Timeout => 30, Passive => $ENV{FTP_PASSIVE} eq '1',
    SSL         => $ENV{FTP_IMPLICIT} ? 1 : 0,
    SSL_ca_file => $ENV{FTP_CA},
    SSL_version => $ENV{FTP_VERSION} eq '1.2' ? 'TLSv1_2' : 'TLSv1_3',
) or die "connect: $@";
!$ENV{FTP_TLS} or $ENV{FTP_IMPLICIT} or $ftp->starttls or die 'starttls: ', $ftp->message;
$ftp->login($ENV{FTP_USER}, $ENV{FTP_PASSWORD}) or die 'login: ', $ftp->message;
!$ENV{FTP_TLS} or $ftp->prot('P') or die 'prot: ', $ftp->message;
$ENV{FTP_TYPE} eq 'A' ? $ftp->ascii : $ftp->binary;

($ftp->mkdir('mine_lock') // '') eq 'mine_lock' or die 'mkdir: ', $ftp->message;
$ftp->mkdir('taken_lock') and die 'the lock has two holders';
print 'refused: ', $ftp->message;
$ftp->put('one', 'file') or die 'put: ', $ftp->message;
$ftp->put('two', 'file') or die 'replace: ', $ftp->message;
$ftp->put('one', 'gone') or die 'put: ', $ftp->message;
$ftp->get('file', 'down') or die 'get: ', $ftp->message;
print 'listed: ', join(' ', $ftp->ls), "\n";
$ftp->rename('gone', 'kept') or die 'rename: ', $ftp->message;
$ftp->delete('kept') or die 'delete: ', $ftp->message;
$ftp->rmdir('mine_lock') or die 'rmdir: ', $ftp->message;
$ftp->quit;
