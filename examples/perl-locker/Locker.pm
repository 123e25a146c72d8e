package Locker;
# Named locks on an ftplockd server. A name is any string. A lock lasts until unlock, until the end of its object or of its process, or
# until it expires.
#
#   my $locker = Locker->new;
#   my $lock   = $locker->lock('invoice 4711', { expires => 60, wait => 10 });    # or dies
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

# new({ host, port, user, password, directory }): all keys are optional. The names in the directory must be locks.
sub new {
    my ($class, $arg) = @_;
    return bless { %{ $class->default_arguments }, %{ $arg || {} } }, $class;
}

# A subclass can override default_arguments.
sub default_arguments {
    return {
        host => $ENV{FTP_HOST} || '127.0.0.1', port     => $ENV{FTP_PORT} || 2121,
        user => $ENV{FTP_USER} || 'ftp',       password => $ENV{FTP_PASSWORD},
        directory => '/locks',
    };
}

# ftp returns the session of this process. It connects again if the connection has ended, and never uses the session of a parent process,
# because two processes on one connection get each other's replies. The job key makes the new session the same job as the old one, so it can
# release locks of the old session even before the server detects the end of that session.
sub ftp {
    my $self = shift;
    if (!$self->{pid} || $self->{pid} != $$) {
        @$self{qw(ftp pid job_key)} = (undef, $$, guid());
    }
    return $self->{ftp} if $self->{ftp} && defined $self->{ftp}->pwd;
    my $ftp = $self->connected;
    $ftp->site('LOCK', 'AS', $self->{job_key});
    return $self->{ftp} = $ftp;
}

# connected returns a new session without a job key.
sub connected {
    my $self = shift;
    my $ftp = Net::FTP->new($self->{host}, Port => $self->{port}) or die "cannot connect: $@\n";
    $ftp->login($self->{user}, $self->{password}) or die 'cannot log in: ', $ftp->message;
    $ftp->binary;
    return $ftp;
}

# lock(NAME, { expires => seconds (default 3600), wait => seconds (default 0) }) returns a Locker::Lock or dies. The server's rule can set
# a shorter age; the method expires of the lock returns the real one.
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

    # A note in the lock, which all clients can read. unlock removes it first. If this upload fails, the end of $lock releases the lock.
    open my $note, '<', \$json->encode($lock->locked_by) or die $!;
    $ftp->put($note, "$path/locked_by") or die "could not write into the lock <$name>: ", $ftp->message;
    return $lock;
}

# release removes the note in a lock and releases the lock.
sub release {
    my ($ftp, $path) = @_;
    $ftp->delete("$path/locked_by"); # the note may be missing
    return $ftp->rmdir($path);
}

# locked_by(NAME) returns the holder: host, pid and guid; an empty hash if another program made the lock; undef if the lock is free.
sub locked_by {
    my ($self, $name) = @_;
    my $path = $self->path($name);
    my $info = $self->info($path) or return undef;
    open my $to, '>', \(my $note = '') or die $!;
    $self->{ftp}->get("$path/locked_by", $to);
    # If the lock changed its holder between the two replies, the note is not that of the holder.
    my $now = $self->info($path) or return undef;
    return $self->locked_by($name) if $now->{token} != $info->{token};
    return $note eq '' ? {} : $json->decode($note);
}

# names returns the names of all held locks.
sub names {
    my $self = shift;
    my $ftp  = $self->ftp;
    $ftp->site('LOCKS', "$self->{directory}/*") == 2 or die 'cannot list the locks: ', $ftp->message;
    return map { s/%(..)/chr hex $1/ger } $ftp->message =~ m{^ *type=lock;\S* \Q$self->{directory}\E/([^/\r\n]+)$}mg;
}

# purge_dead releases the locks of dead processes of this machine before they expire, and returns their names. Locks of living processes
# stay, because the server refuses to release them while their session is open. The server itself ends expired locks. A session with another
# job key than the lock's could release none, so purge_dead uses one without a job key.
sub purge_dead {
    my $self = shift;
    my $ftp = $self->connected;
    my @purged;
    for my $name ($self->names) {
        my $by = $self->locked_by($name);
        next unless $by && $by->{pid} && $by->{host} eq hostname() && !kill(0, $by->{pid}) && $!{ESRCH};
        push @purged, $name if release($ftp, $self->path($name));
    }
    return @purged;
}

# info requests the facts of a lock: { token, expires }, or undef if the lock is free.
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

# path encodes any string as one component of a path. Different names have different paths.
sub path {
    my ($self, $name) = @_;
    utf8::encode($name) if utf8::is_utf8($name);
    return "$self->{directory}/" . $name =~ s/([^\w-])/sprintf '%%%02X', ord $1/gear;
}

sub guid { return sha1_hex(join ' ', hostname(), $$, time, rand) }

1;
