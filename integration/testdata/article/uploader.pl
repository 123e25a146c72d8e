#!/usr/bin/perl -w
# Uploads the phone list while nobody else reads or writes it.
# usage: uploader.pl host port user password file seconds
use strict;
use Net::FTP;

my ($host, $port, $user, $password, $file, $seconds) = @ARGV;

my $ftp = Net::FTP->new($host, Port => $port) or die "Cannot connect: $@";
$ftp->login($user, $password)                or die "Cannot log in: ", $ftp->message;
$ftp->cwd('data')                            or die "Cannot go to data: ", $ftp->message;

# The lock is a directory: of all who try, one can make it.
until ($ftp->mkdir('phone_lock')) { select(undef, undef, undef, $seconds) }

$ftp->put($file, 'phone.tmp')                or warn "Cannot upload: ", $ftp->message;
$ftp->delete('phone.tsv');
$ftp->rename('phone.tmp', 'phone.tsv')       or warn "Cannot rename: ", $ftp->message;

$ftp->rmdir('phone_lock')                    or die "Cannot unlock: ", $ftp->message;
$ftp->quit;
