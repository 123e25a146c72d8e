#!/usr/bin/perl
# Downloads the phone list while no other program changes it. Only a complete list replaces the old one.
# usage: downloader.pl FILE [SECONDS between two tries]
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Session;

@ARGV or die "usage: downloader.pl FILE [SECONDS]\n";
my ($file, $seconds) = (@ARGV, 3);
my $part = "$file.$$.part";    # another downloader can have the same FILE

my $ftp = session();
$ftp->site('WAIT', 60);    # as in uploader.pl

until ($ftp->mkdir('phone_lock')) {
    busy($ftp) or die 'cannot lock: ', $ftp->message;
    select undef, undef, undef, $seconds;
}

my $problem = download();
unlink $part if defined $problem;
$ftp->rmdir('phone_lock') or unlink($part), die 'cannot unlock: ', $ftp->message;
die $problem if defined $problem;
$ftp->quit;
rename $part, $file or die "cannot rename $part: $!\n";

# download returns the error. It opens the file itself: for a file, Net::FTP would return only the last reply of the server.
sub download {
    open my $to, '>', $part     or return "cannot write $part: $!\n";
    binmode $to;
    $ftp->get('phone.tsv', $to) or return 'cannot download: ' . $ftp->message;
    close $to                   or return "cannot write $part: $!\n";
    return;
}
