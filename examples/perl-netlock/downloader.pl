#!/usr/bin/perl
# Downloads the phone list while nobody changes it. A list that is there already is replaced only by a whole one.
# usage: downloader.pl FILE [SECONDS between two tries]
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Session;

@ARGV or die "usage: downloader.pl FILE [SECONDS]\n";
my ($file, $seconds) = (@ARGV, 3);

my $ftp = session();
$ftp->site('WAIT', 60);    # as in uploader.pl

until ($ftp->mkdir('phone_lock')) {
    busy($ftp) or die 'cannot lock: ', $ftp->message;
    select undef, undef, undef, $seconds;
}

my $downloaded = $ftp->get('phone.tsv', "$file.part");
my $why        = $ftp->message;

$ftp->rmdir('phone_lock') or die 'cannot unlock: ', $ftp->message;
$downloaded               or die 'cannot download: ', $why;
$ftp->quit;
rename "$file.part", $file or die "cannot rename $file.part: $!\n";
