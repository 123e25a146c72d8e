#!/usr/bin/perl
# Prints the number of a person in the phone list. If the list is locked, it tries ten times and then ends with a message.
# usage: lookup.pl NAME [SECONDS between two tries]
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Session;

@ARGV or die "usage: lookup.pl NAME [SECONDS]\n";
my ($name, $seconds) = (@ARGV, 3);

my $ftp = session();
my $tries;
until ($ftp->mkdir('phone_lock')) {
    busy($ftp) or die 'cannot lock: ', $ftp->message;
    if (++$tries == 10) {
        print "The phone list is busy. Please try again later. The server says: ", $ftp->message;
        $ftp->quit;
        exit 75;    # "temporary failure" in sysexits.h
    }
    select undef, undef, undef, $seconds;
}

open my $to, '>', \my $list or die $!;
my $downloaded = $ftp->get('phone.tsv', $to);
my $why        = $ftp->message;
$ftp->rmdir('phone_lock') or die 'cannot unlock: ', $ftp->message;
$downloaded               or die 'cannot download: ', $why;
$ftp->quit;

my ($number) = $list =~ /^\Q$name\E\t(.*)/m or die "$name is not in the list.\n";
print "$number\n";
