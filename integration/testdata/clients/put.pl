# Uploads its standard input. FTP_TLS=1 in the environment asks for TLS.
# usage: put.pl host port user password A|I path
use strict;
use warnings;
use Net::FTP;
my ($host, $port, $user, $password, $type, $path) = @ARGV;

my $ftp = Net::FTP->new($host, Port => $port, Timeout => 20, SSL_verify_mode => 0) or die "cannot connect: $@\n";
if ($ENV{FTP_TLS}) { $ftp->starttls or die $ftp->message }
$ftp->login($user, $password) or die $ftp->message;
$type eq 'A' ? $ftp->ascii : $ftp->binary;
$ftp->put(\*STDIN, $path) or die $ftp->message;
$ftp->quit;
