# Uploads its standard input: as one file, or, if a number is given, that many times what is in it.
# usage: put.pl host port user password A|I path [times]
use strict;
use warnings;
use Net::FTP;
my ($host, $port, $user, $password, $type, $path, $times) = @ARGV;

my $text = $times ? do { local $/; <STDIN> } : '';
for my $n (1 .. $times || 1) {
    my $ftp = Net::FTP->new($host, Port => $port, Timeout => 20) or die "cannot connect: $@\n";
    $ftp->login($user, $password) or die $ftp->message;
    $type eq 'A' ? $ftp->ascii : $ftp->binary;
    open(my $in, '<', \$text) or die $!;
    $ftp->put($times ? ($in, "$path.$n") : (\*STDIN, $path)) or die $ftp->message;
    $ftp->quit;
}
