#!/usr/bin/perl
# Lists the locks and who has them. With --purge it first gives back those of processes of this machine that have died.
# usage: locks.pl [--purge]
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Locker;

my $locker = Locker->new;
if (@ARGV && $ARGV[0] eq '--purge') {
    print "purged $_\n" for $locker->purge_dead;
}
for my $name ($locker->names) {
    my $by = $locker->locked_by($name) or next;    # it was given back meanwhile
    print "$name\t", $by->{pid} ? "process $by->{pid} on $by->{host}" : 'another program', "\n";
}
