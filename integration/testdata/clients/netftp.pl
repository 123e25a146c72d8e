# What a client does with locks and files, with Net::FTP. The environment says where and how; see clients_test.go.
use strict;
use warnings;
use Net::FTP;

sub session {
    my $ftp = Net::FTP->new($ENV{FTP_HOST}, Port => $ENV{FTP_PORT}, Passive => $ENV{FTP_PASSIVE}, Timeout => 20,
        SSL_verify_mode => 0) or die "cannot connect: $@\n";
    if ($ENV{FTP_TLS}) { $ftp->starttls or die "no TLS: ", $ftp->message }
    $ftp->login($ENV{FTP_USER}, $ENV{FTP_PASSWORD}) or die "cannot log in: ", $ftp->message;
    $ENV{FTP_TYPE} eq 'A' ? $ftp->ascii : $ftp->binary;
    return $ftp;
}
# The prototype makes the first argument scalar: Net::FTP's failures are empty lists.
sub check($$$) { my ($ok, $what, $ftp) = @_; $ok or die "$what: ", $ftp->message }

my ($one, $two) = (session(), session());
my $lock = "$ENV{FTP_DIR}/phone_lock";
my $made = $one->mkdir($lock);
check(defined $made && $made eq $lock, 'mkdir', $one);
die "two holders\n" if $two->mkdir($lock);
print 'refused: ', $two->message;
die "anyone can release\n" if $two->rmdir($lock);
check($one->rmdir($lock), 'rmdir', $one);
check($two->mkdir($lock), 'second mkdir', $two);
check($two->rmdir($lock), 'second rmdir', $two);

check($one->cwd($ENV{FTP_DIR}), 'cwd', $one);
check($one->put("$ENV{LOCAL}/up", 'first'), 'put', $one);
check(scalar(grep { $_ eq 'first' } $one->ls), 'ls', $one);
check(scalar(grep { /\bfirst$/ } $one->dir), 'dir', $one);
check($one->get('first', "$ENV{LOCAL}/down"), 'get', $one);
check($one->rename('first', 'kept'), 'rename', $one);
check($one->put("$ENV{LOCAL}/up", 'gone'), 'put', $one);
check($one->delete('gone'), 'delete', $one);
check($one->quit && $two->quit, 'quit', $one);
