package Session;
# A session on the server that the environment names; the other programs of this directory begin with it.
use strict;
use warnings;
use Exporter 'import';
use Net::FTP;

our @EXPORT = qw(session busy);

# session() logs in or dies. Transfers are binary: the phone list is the same on every machine.
sub session {
    my $ftp = Net::FTP->new($ENV{FTP_HOST} || '127.0.0.1', Port => $ENV{FTP_PORT} || 2121)
        or die "cannot connect: $@\n";
    $ftp->login($ENV{FTP_USER} || 'ftp', $ENV{FTP_PASSWORD}) or die 'cannot log in: ', $ftp->message;
    $ftp->binary;
    return $ftp;
}

# busy($ftp) is true if the last answer may mean that somebody else has the lock: 550, or 521 from some old servers.
# After any other failure (the connection is gone, the server shuts down) it makes no sense to try on.
sub busy { $_[0]->code == 550 || $_[0]->code == 521 }

1;
