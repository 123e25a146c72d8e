# Uploads its standard input, or the file that is named; SIGINT aborts the upload.
# usage: send.pl host port user password A|I path [file]
use strict;
use warnings;
use Net::FTP;
my ($host, $port, $user, $password, $type, $path, $file) = @ARGV;

my $ftp = Net::FTP->new($host, Port => $port, Timeout => 20) or die "cannot connect: $@\n";
$ftp->login($user, $password) or die $ftp->message;
$type eq 'A' ? $ftp->ascii : $ftp->binary;
if ($file) {
    $ftp->alloc(-s $file); # put announces the length by itself in active mode only
    $ftp->put($file, $path) or die $ftp->message;
} else {
    my $data = $ftp->stor($path) or die $ftp->message;
    my $stop = 0;
    local $SIG{INT} = sub { $stop = 1 };
    while (!$stop && sysread(STDIN, my $piece, 8192)) {
        $data->write($piece, length $piece) or last;
    }
    if ($stop) {
        my $ok = $ftp->abort; # it drops the reply that the transfer gets
        print "aborted: ", $ok ? 'yes' : 'no', ' ', $ftp->code, "\n";
        print $ftp->pwd, "\n";
        $ftp->quit;
        exit 3;
    }
    $data->close or die $ftp->message;
}
$ftp->quit;
