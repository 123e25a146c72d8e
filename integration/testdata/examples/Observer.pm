package Observer;
# Watches an example without its knowledge: notes when it asks for a lock, has it and is about to give it back. It runs within the
# example's process (PERL5OPT=-MObserver) and does not trust the lock: whether two have had it at one time is seen from the notes of all.
#   OBSERVE       the function that takes the lock and the one that gives it back, as in "Net::FTP::mkdir Net::FTP::rmdir"
#   OBSERVE_LOG   the file of the notes
#   OBSERVE_STOP  if set: the process says "holding" when it has the lock, and goes on after a line of its standard input
#   OBSERVE_DIR   if set: the directory to change to after the login
use strict;
use warnings;

my $holds;

sub note {
    my $what = shift;
    open my $log, '>>', $ENV{OBSERVE_LOG} or die $!;
    syswrite $log, "$what $$\n" or die $!;
}

INIT {
    if ($ENV{OBSERVE_DIR}) {
        no warnings 'redefine';
        my $login = \&Net::FTP::login;
        *Net::FTP::login = sub { $login->(@_) && $_[0]->cwd($ENV{OBSERVE_DIR}) };
    }
    if ($ENV{OBSERVE}) {
        no strict 'refs';
        no warnings 'redefine';
        my ($take, $give) = split ' ', $ENV{OBSERVE};
        my ($taking, $giving) = (\&$take, \&$give);
        *$take = sub {
            note('try');
            my $got = $taking->(@_);
            return $got unless $got;
            $holds = 1;
            note('begin');
            if ($ENV{OBSERVE_STOP}) {
                syswrite STDOUT, "holding\n";
                sysread STDIN, my $line, 1;
            }
            select undef, undef, undef, 0.005;    # if the lock does nothing there is time for others
            return $got;
        };
        *$give = sub {
            note('end') if $holds;
            $holds = 0;
            return $giving->(@_);
        };
    }
}

1;
