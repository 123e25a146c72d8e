#!/usr/bin/perl
# Lists the locks and their holders. With --purge it first releases the locks of dead processes of this machine.
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
    my $by = $locker->locked_by($name) or next;    # it was released meanwhile
    print "$name\t", $by->{pid} ? "process $by->{pid} on $by->{host}" : 'another program', "\n";
}
