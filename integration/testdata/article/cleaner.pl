#!/usr/bin/perl -w
# For cron on the server's own machine: removes lock directories that are older than some minutes.
# usage: cleaner.pl directory minutes
use strict;
use File::Find;

my ($directory, $minutes) = @ARGV;

finddepth({ no_chdir => 1, wanted => sub {
    return unless -d && /_lock$/;
    my $age = (time - (stat _)[9]) / 60;
    if ($age > $minutes) { rmdir and print "removed $_\n" or warn "Cannot remove $_: $!\n" }
} }, $directory);
