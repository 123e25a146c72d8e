#!/usr/bin/perl -w
# Tries ten times, then leaves politely.
# usage: patient.pl host port user password seconds
use strict;
use Net::FTP;

my ($host, $port, $user, $password, $seconds) = @ARGV;

my $ftp = Net::FTP->new($host, Port => $port) or die "Cannot connect: $@";
$ftp->login($user, $password)                or die "Cannot log in: ", $ftp->message;
$ftp->cwd('data')                            or die "Cannot go to data: ", $ftp->message;

my $tries = 0;
until ($ftp->mkdir('phone_lock')) {
    if (++$tries == 10) {
        print "Sorry, somebody has been busy with the phone list for a long time. Please try again later.\n";
        $ftp->quit;
        exit 1;
    }
    select(undef, undef, undef, $seconds);
}
print "Got it after $tries refusals.\n";
$ftp->rmdir('phone_lock') or die "Cannot unlock: ", $ftp->message;
$ftp->quit;
