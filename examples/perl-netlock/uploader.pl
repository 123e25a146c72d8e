#!/usr/bin/perl
# Uploads the phone list while nobody else reads or changes it.
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
$ftp->site('WAIT', 60);    # ftplockd lets mkdir wait for its turn; another server says 500, and we try again and again

until ($ftp->mkdir('phone_lock')) {
    busy($ftp) or die 'cannot lock: ', $ftp->message;
    select undef, undef, undef, $seconds;
}

# The length is announced, so the server can tell a whole upload from one that was cut off.
$ftp->alloc(-s $file);
my $uploaded = $ftp->put($file, 'phone.tsv');
my $why      = $ftp->message;

$ftp->rmdir('phone_lock') or die 'cannot unlock: ', $ftp->message;
$uploaded                 or die 'cannot upload: ', $why;
$ftp->quit;
