package Wrapped;
# Changes Net::FTP for the test of an example (PERL5OPT=-MWrapped).
#   STOP  get or put: before it transfers a file, the program prints "holding" and waits for a line or the end of its standard input
#   DIR   the directory to which the program changes after its login
use strict;
use warnings;
use Net::FTP;
no strict 'refs';
no warnings 'redefine';

if (my $stop = $ENV{STOP}) {
    my $transfer = \&{"Net::FTP::$stop"};
    *{"Net::FTP::$stop"} = sub {
        syswrite STDOUT, "holding\n";
        sysread STDIN, my $line, 1;
        goto &$transfer;
    };
}
if (my $dir = $ENV{DIR}) {
    my $login = \&Net::FTP::login;
    *Net::FTP::login = sub { $login->(@_) && $_[0]->cwd($dir) };
}

1;
