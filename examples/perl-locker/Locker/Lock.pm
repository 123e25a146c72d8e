package Locker::Lock;
# A lock that Locker's lock has made.
use strict;
use warnings;
use Carp;
use Scalar::Util 'weaken';

# What this process holds, by guid. Weak: a lock of which nobody else knows is given back.
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
sub token      { $_[0]{token} }              # grows with every lock of the server: who has the higher one came later

# expires tells when the server will end it (as of time(), undef if never). With a time it asks for a full age from now on, and dies if
# the lock was lost or will end before that time. It never shortens.
sub expires {
    my ($self, $until) = @_;
    return $self->{expires} if @_ == 1;
    $until =~ /^\d+(?:\.\d+)?$/ or croak 'a time as of time() is wanted';
    my $ftp = $self->locker->ftp;
    $ftp->site('LOCK', 'RENEW', $self->{path}) == 2 or die "could not renew <$self->{lockstring}>: ", $ftp->message;
    my $info = $self->locker->info($self->{path});
    $info && $info->{token} == $self->{token} or die "<$self->{lockstring}> was lost\n";
    $self->{expires} = $info->{expires};
    # It is cut to a second.
    die "<$self->{lockstring}> cannot last so long\n" if defined $self->{expires} && $self->{expires} + 1 < $until;
    return $self->{expires};
}

# is_locked asks the server whether it is still ours.
sub is_locked {
    my $self = shift;
    return '' unless $self->{is_mine};
    my $info = $self->locker->info($self->{path});
    return $info && $info->{token} == $self->{token};
}

# unlock gives it back; a second time it does nothing. It dies if the lock was lost meanwhile.
sub unlock {
    my $self = shift;
    delete $self->{is_mine} or return;
    delete $held{ $self->guid };
    my $ftp = $self->locker->ftp;
    Locker::release($ftp, $self->{path}) or die "could not unlock <$self->{lockstring}>: ", $ftp->message;
}

# A child process has a copy of its parent's locks, which are not its own.
sub DESTROY {
    my $self = shift;
    return unless $self->{is_mine} && $self->locked_by->{pid} == $$;
    local ($@, $!, $?);
    eval { $self->unlock; 1 } or warn $@;
}

# At the end of the program perl takes objects apart in any order, and a lock may be left without its locker: so before that.
END {
    local ($?, $!);
    $_->DESTROY for grep { defined } values %held;
}

1;
