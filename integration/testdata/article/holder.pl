#!/usr/bin/perl -w
# Works under a lock: says when it has it, goes on until its standard input ends, and gives it back.
# usage: holder.pl host port user password lock seconds
use strict;
use FindBin;
use lib $FindBin::Bin;
use NetLock;

$| = 1;
my $lock = NetLock->new(@ARGV);
print "working ", $lock->locksmith, "\n";
1 while <STDIN>;
print $lock->release ? "released\n" : "lost\n";
