#!/usr/bin/perl -w
# Holds a lock for its parent, who has no time to keep an FTP connection alive: says OK when it has the lock, and
# gives it back when its standard input ends, which happens also when the parent dies.
# usage: locksmith.pl host port user password lock seconds
use strict;
use IO::Select;
use Net::FTP;

my ($host, $port, $user, $password, $lock, $seconds) = @ARGV;
$| = 1;

my $ftp = Net::FTP->new($host, Port => $port) or die "Cannot connect: $@";
$ftp->login($user, $password)                or die "Cannot log in: ", $ftp->message;

my $parent = IO::Select->new(\*STDIN);
until ($ftp->mkdir($lock)) {
    exit 1 if $parent->can_read($seconds) && eof STDIN;
}
print "OK\n";

# A connection without commands would be closed some day.
until ($parent->can_read($seconds) && eof STDIN) {
    defined $ftp->pwd or die "The connection is gone\n";
}
$ftp->rmdir($lock) or die "Cannot unlock: ", $ftp->message;
$ftp->quit;
