#!/usr/bin/perl
# Removes locks that are older than an age, over FTP: for cron on any machine, while a find(1) would have to run on the server's own.
# usage: cleaner.pl [-n] [-p PATTERN] AGE DIRECTORY...
#   AGE      as 90s, 6m or 2h
#   -p       a Perl pattern for the names of locks; _lock$ if there is none
#   -n       only says what it would remove
#
# What time it is, the server says: the age of a lock is how much older it is than a directory that is made just now. So it does not
# matter how the clocks and time zones of the two machines differ. Whatever it cannot tell the age of stays.
use strict;
use warnings;
use FindBin;
use lib $FindBin::Bin;
use Getopt::Std;
use Session;
use Sys::Hostname;
use Time::Local qw(timegm_nocheck);

my %unit = (s => 1, m => 60, h => 3600);
getopts('np:', \my %option) && @ARGV >= 2 && $ARGV[0] =~ /^(\d+)([smh])$/
    or die "usage: cleaner.pl [-n] [-p PATTERN] AGE DIRECTORY...\n";
my $limit = $1 * $unit{$2};
shift;
my $pattern = defined $option{p} ? $option{p} : '_lock$';
my $clock   = sprintf 'cleaner-%s-%d.clock', hostname() =~ s/[^\w.-]//gr, $$;

my $ftp = session();
clean($_) for @ARGV;
$ftp->quit;

sub clean {
    my $directory = shift;
    $directory =~ s{/*$}{/};
    $ftp->mkdir("$directory$clock") or die "cannot make $directory$clock: ", $ftp->message;
    my $now = modified($directory, $clock) or warn "cannot tell times in $directory\n";
    # Clocks of cleaners that were killed have to go, too.
    for my $name (grep { $_ ne $clock && /$pattern|^cleaner-.*\.clock$/ } map { $_->{name} } list($directory)) {
        my $then = modified($directory, $name);
        next unless $now && $then && older($now, $then);    # without a time of its own it is gone
        if    ($option{n})                     { print "would remove $directory$name\n" }
        elsif ($ftp->rmdir("$directory$name")) { print "removed $directory$name\n" }
        else                                   { print "cannot remove $directory$name: ", $ftp->message }
    }
    $ftp->rmdir("$directory$clock") or warn "cannot remove $directory$clock: ", $ftp->message;
}

# older: is the difference above the limit, as far as one can rely on it? Both times were cut off to whole seconds, or minutes, or days. A
# local clock is put on by an hour in spring, which can be part of a difference of an hour or more.
sub older {
    my ($now, $then) = @_;
    return if $now->{local} != $then->{local};    # not comparable
    my $age = $now->{time} - $then->{time} - $then->{step};
    $age -= 3600 if $then->{local} && $age >= 3600 - $then->{step};
    return $age >= $limit;
}

# modified tells when a directory was modified: time, in seconds by the server's clock; step, how many seconds there are from one possible
# value to the next; local, if it may be the time of day at the server's place. MDTM is for files (RFC 3659 section 3), and few
# servers answer it for a directory; ftplockd does, and tells when the lock was taken. All servers have LIST.
sub modified {
    my ($directory, $name) = @_;
    my $time = $ftp->mdtm("$directory$name");
    return { time => $time, step => 1, local => 0 } if defined $time;
    my ($found) = grep { $_->{name} eq $name } list($directory);
    return $found;
}

# list returns the directories in a directory, with the times that a listing in the style of ls has: "Nov 21 19:22", or "Nov 21 2025".
sub list {
    my $directory = shift;
    my $listing   = $ftp->dir($directory) or die "cannot list $directory: ", $ftp->message;
    my ($i, %month) = (0);
    $month{$_} = $i++ for qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec);
    my @found;
    for (@$listing) {
        s/\r$//;
        my ($month, $day, $year, $hour, $minute, $name) =
            /^d.*?\s(\w{3})\s+(\d+)\s+(?:(\d{4})|(\d+):(\d+))\s(.*)$/ or next;
        next unless exists $month{$month};
        my $at = sub { timegm_nocheck(0, $minute || 0, $hour || 0, $day, $month{$month}, $_[0]) };
        my $time;
        if ($year) { $time = $at->($year) }
        else {    # it is not later than tomorrow
            my $this = 1900 + (gmtime)[5];
            ($time) = grep { $_ < time + 86400 } map { $at->($_) } $this + 1, $this, $this - 1;
        }
        push @found, { name => $name, time => $time, step => $year ? 86400 : 60, local => 1 };
    }
    return @found;
}
