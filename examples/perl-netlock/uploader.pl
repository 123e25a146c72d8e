#!/usr/bin/perl
# Uploads the phone list while no other program reads or changes it.
# usage: uploader.pl FILE [SECONDS between two tries]
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Session;

@ARGV or die "usage: uploader.pl FILE [SECONDS]\n";
my ($file, $seconds) = (@ARGV, 3);
-f $file or die "there is no file $file\n";

my $ftp = session();
$ftp->site('WAIT', 60);    # on ftplockd, mkdir waits for its turn; other servers reply 500, and the loop tries again

until ($ftp->mkdir('phone_lock')) {
    busy($ftp) or die 'cannot lock: ', $ftp->message;
    select undef, undef, undef, $seconds;
}

# With the announced length the server detects a truncated upload.
$ftp->alloc(-s $file);
my $uploaded = $ftp->put($file, 'phone.tsv');
my $why      = $ftp->message;

$ftp->rmdir('phone_lock') or die 'cannot unlock: ', $ftp->message;
$uploaded                 or die 'cannot upload: ', $why;
$ftp->quit;
