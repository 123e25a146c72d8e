# Uploads under a temporary name, locks, deletes the old file, renames, unlocks: as programs did before servers could do it.
# usage: old.pl host port user password directory file
use strict;
use warnings;
use Net::FTP;
my ($host, $port, $user, $password, $dir, $file) = @ARGV;
my $ftp = Net::FTP->new($host, Port => $port, Timeout => 20) or die "cannot connect: $@\n";
$ftp->login($user, $password) && $ftp->binary && $ftp->cwd($dir) && $ftp->put($file, 'phone.tmp') && $ftp->mkdir('phone_lock')
    && $ftp->delete('phone.tsv') && $ftp->rename('phone.tmp', 'phone.tsv') && $ftp->rmdir('phone_lock') && $ftp->quit
    or die $ftp->message;
