package Locker::Lock;
# A lock that Locker's method lock returns.
use strict;
use warnings;
use Carp;
use Scalar::Util 'weaken';

# The locks that this process holds, by guid. The references are weak, so a lock ends with its last other reference.
my %held;

sub new {
    my ($class, $arg) = @_;
    my $self = bless { %$arg, is_mine => 1 }, $class;
    weaken($held{ $self->guid } = $self);
    return $self;
}

sub locker     { $_[0]{locker} }
sub lockstring { $_[0]{lockstring} }
sub locked_by  { $_[0]{locked_by} }          # host, pid, guid
sub guid       { $_[0]{locked_by}{guid} }    # no other lock has it
sub token      { $_[0]{token} }              # grows with every grant of the server: a later lock has a greater token

# expires returns the time when the server ends the lock (as time(); undef if never). With a time, it renews the lock for its full age, and
# dies if the lock was lost or ends before that time. It never shortens.
sub expires {
    my ($self, $until) = @_;
    return $self->{expires} if @_ == 1;
    $until =~ /^\d+(?:\.\d+)?$/ or croak 'a time as of time() is wanted';
    my $ftp = $self->locker->ftp;
    $ftp->site('LOCK', 'RENEW', $self->{path}) == 2 or die "could not renew <$self->{lockstring}>: ", $ftp->message;
    my $info = $self->locker->info($self->{path});
    $info && $info->{token} == $self->{token} or die "<$self->{lockstring}> was lost\n";
    $self->{expires} = $info->{expires};
    # The time is in whole seconds.
    die "<$self->{lockstring}> cannot last so long\n" if defined $self->{expires} && $self->{expires} + 1 < $until;
    return $self->{expires};
}

# is_locked is true if the server confirms that this process holds the lock.
sub is_locked {
    my $self = shift;
    return '' unless $self->{is_mine};
    my $info = $self->locker->info($self->{path});
    return $info && $info->{token} == $self->{token};
}

# unlock releases the lock; a second call does nothing. It dies if the lock was lost.
sub unlock {
    my $self = shift;
    delete $self->{is_mine} or return;
    delete $held{ $self->guid };
    my $ftp = $self->locker->ftp;
    Locker::release($ftp, $self->{path}) or die "could not unlock <$self->{lockstring}>: ", $ftp->message;
}

# A child process has copies of its parent's locks, and does not own them.
sub DESTROY {
    my $self = shift;
    return unless $self->{is_mine} && $self->locked_by->{pid} == $$;
    local ($@, $!, $?);
    eval { $self->unlock; 1 } or warn $@;
}

# At the end of a program perl destroys objects in any order, so a lock could outlive its locker. This block runs before that.
END {
    local ($?, $!);
    $_->DESTROY for grep { defined } values %held;
}

1;
