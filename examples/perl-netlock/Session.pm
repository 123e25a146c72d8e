package Session;
# A session on the server in the environment, for the other programs of this directory.
use strict;
use warnings;
use Exporter 'import';
use Net::FTP;

our @EXPORT = qw(session busy);

# session() logs in or dies. Transfers are binary, so the phone list is the same on every machine.
sub session {
    my $ftp = Net::FTP->new($ENV{FTP_HOST} || '127.0.0.1', Port => $ENV{FTP_PORT} || 2121)
        or die "cannot connect: $@\n";
    $ftp->login($ENV{FTP_USER} || 'ftp', $ENV{FTP_PASSWORD}) or die 'cannot log in: ', $ftp->message;
    $ftp->binary;
    return $ftp;
}

# busy($ftp) is true if the last reply can mean that another client has the lock: 550, or 521 of some old servers.
# After any other failure (the connection ended, the server shuts down) do not try again.
sub busy { $_[0]->code == 550 || $_[0]->code == 521 }

1;
