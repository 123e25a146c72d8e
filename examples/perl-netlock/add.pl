#!/usr/bin/perl
# Adds an entry to the phone list. It downloads, changes and uploads the list under one lock, so no entry that another program adds at
# the same moment is lost.
# usage: add.pl NAME NUMBER [URL of the lock; default: the variable LOCK]
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use NetLock;
use Session;

@ARGV >= 2 or die "usage: add.pl NAME NUMBER [URL]\n";
my ($name, $number, $url) = (@ARGV, $ENV{LOCK});
length $name && length $number or die "neither the name nor the number can be empty\n";
defined $url or die "name the lock: LOCK=ftp://user\@host/%2Fphone_lock\n";
"$name$number" =~ m{[\t\r\n]} and die "an entry is one line without tabs\n";

my $lock = NetLock->new($url);
my $ftp  = session();

open my $to, '>', \(my $list = '') or die $!;
$ftp->get('phone.tsv', $to) or die 'cannot download: ', $ftp->message;

my %number = map { split /\t/, $_, 2 } split /\n/, $list;
$number{$name} = $number;
$list = join '', map { "$_\t$number{$_}\n" } sort keys %number;

$lock->held or die "the lock was lost; nothing was changed\n";
open my $from, '<', \$list or die $!;
$ftp->alloc(length $list);
$ftp->put($from, 'phone.tsv') or die 'cannot upload: ', $ftp->message;
$ftp->quit;
$lock->release or die "the lock was lost; look whether $name is in the list\n";
