#!/usr/bin/perl -w
# Downloads the phone list while nobody changes it.
# usage: downloader.pl host port user password file seconds
use strict;
use Net::FTP;

my ($host, $port, $user, $password, $file, $seconds) = @ARGV;

my $ftp = Net::FTP->new($host, Port => $port) or die "Cannot connect: $@";
$ftp->login($user, $password)                or die "Cannot log in: ", $ftp->message;
$ftp->cwd('data')                            or die "Cannot go to data: ", $ftp->message;

until ($ftp->mkdir('phone_lock')) { select(undef, undef, undef, $seconds) }
$ftp->get('phone.tsv', $file)                or warn "Cannot download: ", $ftp->message;
$ftp->rmdir('phone_lock')                    or die "Cannot unlock: ", $ftp->message;
$ftp->quit;
