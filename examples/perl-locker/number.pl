#!/usr/bin/perl
# Prints a number of a sequence (of invoices, tickets, test runs). No other program on any machine gets the same number.
# usage: number.pl SEQUENCE [SECONDS to wait for the lock]
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Locker;

@ARGV or die "usage: number.pl SEQUENCE [SECONDS]\n";
my ($sequence, $wait) = (@ARGV, 60);
$sequence =~ /^[\w-]+$/ or die "the name of a sequence is made of letters, digits, - and _\n";

my $locker = Locker->new;
my $lock   = $locker->lock($sequence, { expires => 30, wait => $wait });
my $ftp    = $locker->ftp;

# After a failure the program dies, and the end of $lock releases the lock. A new sequence begins with 1.
open my $to, '>', \(my $last = '') or die $!;
$ftp->get("$sequence.last", $to) or $ftp->code == 550 or die 'cannot read the last number: ', $ftp->message;
my $next = 1 + ($last || 0);

open my $from, '<', \"$next\n" or die $!;
$ftp->alloc(length "$next\n");
$ftp->put($from, "$sequence.last") or die 'cannot write the number: ', $ftp->message;
$lock->unlock;
print "$next\n";
