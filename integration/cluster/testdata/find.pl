#!/usr/bin/perl -w
# Takes and gives back a lock. usage: find.pl host port user password lock
use strict;
use Net::FTP;

my ($host, $port, $user, $password, $lock) = @ARGV;
my $ftp = Net::FTP->new($host, Port => $port) or die "Cannot connect: $@";
$ftp->login($user, $password) or die "Cannot log in: ", $ftp->message;
$ftp->mkdir($lock)            or die "Cannot lock: ", $ftp->message;
$ftp->rmdir($lock)            or die "Cannot unlock: ", $ftp->message;
$ftp->quit;
