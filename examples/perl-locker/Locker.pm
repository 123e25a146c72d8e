package Locker;
# Named locks on an ftplockd server. A name is any string; its lock lasts until it is unlocked, until the object is gone, until its
# process dies, or until it expires.
#
#   my $locker = Locker->new;
#   my $lock   = $locker->lock('invoice 4711', { expires => 60, wait => 10 });    # dies if it cannot be had
#   ...
#   $lock->unlock;    # or leave the scope
use strict;
use warnings;
use Carp;
use Digest::SHA 'sha1_hex';
use JSON::PP;
use Locker::Lock;
use Net::FTP;
use Sys::Hostname;
use Time::HiRes 'time';

my $json = JSON::PP->new->canonical;

# new({ host, port, user, password, directory }): all of them may be missing. The directory is one whose members are locks.
sub new {
    my ($class, $arg) = @_;
    return bless { %{ $class->default_arguments }, %{ $arg || {} } }, $class;
}

# default_arguments may be overridden by a subclass.
sub default_arguments {
    return {
        host => $ENV{FTP_HOST} || '127.0.0.1', port     => $ENV{FTP_PORT} || 2121,
        user => $ENV{FTP_USER} || 'ftp',       password => $ENV{FTP_PASSWORD},
        directory => '/locks',
    };
}

# ftp is the session of this process: made again if the connection is gone, and never that of a parent process, since two that
# speak on one connection get each other's answers. The nonce tells the server that the new session is the same job as the old one,
# so it may unlock what the old one has locked even if the server does not know yet that that one has ended.
sub ftp {
    my $self = shift;
    if (!$self->{pid} || $self->{pid} != $$) {
        @$self{qw(ftp pid nonce)} = (undef, $$, guid());
    }
    return $self->{ftp} if $self->{ftp} && defined $self->{ftp}->pwd;
    my $ftp = Net::FTP->new($self->{host}, Port => $self->{port}) or die "cannot connect: $@\n";
    $ftp->login($self->{user}, $self->{password}) or die 'cannot log in: ', $ftp->message;
    $ftp->binary;
    $ftp->site('LOCK', 'AS', $self->{nonce});
    return $self->{ftp} = $ftp;
}

# lock(NAME, { expires => seconds, 3600 if it is missing, wait => seconds, 0 if it is missing }) returns a Locker::Lock or dies.
# The server's rule may set a shorter age; the lock tells when it really expires.
sub lock {
    my ($self, $name, $arg) = @_;
    my ($expires, $wait) = map { defined $_->[0] ? $_->[0] : $_->[1] } [ $arg->{expires}, 3600 ], [ $arg->{wait}, 0 ];
    defined wantarray or croak 'a lock that nobody keeps is gone at once';
    defined $name && length $name or croak 'no name of a lock';
    $expires =~ /^[1-9]\d*$/ or croak 'expires is a number of seconds above 0';
    $wait    =~ /^\d+$/      or croak 'wait is a number of seconds';

    my ($ftp, $path) = ($self->ftp, $self->path($name));
    $ftp->timeout($wait + 60);
    $ftp->site('LOCK', 'AGE', $expires) == 2 && $ftp->site('WAIT', $wait) == 2
        or die 'this is no ftplockd: ', $ftp->message;
    $ftp->mkdir($path) or die "could not lock <$name>: ", $ftp->message;
    my $lock = Locker::Lock->new({
        locker     => $self,
        lockstring => $name,
        path       => $path,
        locked_by  => { host => hostname(), pid => $$, guid => guid() },
        %{ $self->info($path) || die "the lock <$name> ended at once" },
    });

    # A note in the lock, for everybody to read. unlock removes it first. If it cannot be written, the lock goes with $lock.
    open my $note, '<', \$json->encode($lock->locked_by) or die $!;
    $ftp->put($note, "$path/locked_by") or die "could not write into the lock <$name>: ", $ftp->message;
    return $lock;
}

# release gives back the lock of that path, with the note in it.
sub release {
    my ($ftp, $path) = @_;
    $ftp->delete("$path/locked_by"); # there may be none
    return $ftp->rmdir($path);
}

# locked_by(NAME) tells who has it: host, pid and guid, or an empty hash if the lock was made by another program; undef if nobody has it.
sub locked_by {
    my ($self, $name) = @_;
    my $path = $self->path($name);
    my $info = $self->info($path) or return undef;
    open my $to, '>', \(my $note = '') or die $!;
    $self->{ftp}->get("$path/locked_by", $to);
    # Between the two answers it may have come to somebody else: what was read then belongs to nobody.
    my $now = $self->info($path) or return undef;
    return $self->locked_by($name) if $now->{token} != $info->{token};
    return $note eq '' ? {} : $json->decode($note);
}

# names lists the names of all locks that are held.
sub names {
    my $self = shift;
    my $ftp  = $self->ftp;
    $ftp->site('LOCKS', "$self->{directory}/*") == 2 or die 'cannot list the locks: ', $ftp->message;
    return map { s/%(..)/chr hex $1/ger } $ftp->message =~ m{^ *type=lock;\S* \Q$self->{directory}\E/([^/\r\n]+)$}mg;
}

# purge_dead gives back the locks of processes of this machine that have died, for which the server would wait until they expire, and
# returns their names. A lock whose process lives stays: the server lets nobody else give it back while its session is there.
# What has expired need not be purged: the server has done it.
sub purge_dead {
    my $self = shift;
    my @purged;
    for my $name ($self->names) {
        my $by = $self->locked_by($name);
        next unless $by && $by->{pid} && $by->{host} eq hostname() && !kill(0, $by->{pid}) && $!{ESRCH};
        push @purged, $name if release($self->ftp, $self->path($name));
    }
    return @purged;
}

# info asks the server about a lock: { token, expires }, or undef if nobody holds it.
sub info {
    my ($self, $path) = @_;
    my $ftp = $self->ftp;
    if ($ftp->site('LOCK', 'INFO', $path) == 2) {
        # A line of facts, in the form of RFC 3659: "type=lock;token=42;longest=347.996;...; PATH"; longest is missing if the lock never ends.
        my ($facts) = $ftp->message =~ /^ *type=lock;(\S*;) /m or return undef;
        my %fact = $facts =~ /(\w+)=([^;]*);/g;
        return { token => $fact{token}, expires => defined $fact{longest} ? time + int $fact{longest} : undef };
    }
    $ftp->code == 550 or die 'cannot look at the lock: ', $ftp->message;
    return undef;
}

# path makes any string one component of a path. Names of locks that differ have different paths.
sub path {
    my ($self, $name) = @_;
    utf8::encode($name) if utf8::is_utf8($name);
    return "$self->{directory}/" . $name =~ s/([^\w-])/sprintf '%%%02X', ord $1/gear;
}

sub guid { return sha1_hex(join ' ', hostname(), $$, time, rand) }

1;
