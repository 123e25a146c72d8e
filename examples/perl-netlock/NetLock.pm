package NetLock;
# A lock as an object: held from new until release, or until nobody has the object any more.
#
#   my $lock = NetLock->new('ftp://bob@ftp.example.com/phone_lock');    # dies with the reason if it cannot be had
#   ... work, for as long as it takes ...
#   $lock->held or die "somebody took the lock away";
#   undef $lock;                              # or $lock->release, or the end of the scope
#
# The program netlock holds it in a process of its own and keeps its FTP connection alive, so this one need not care about
# that, and may die at any moment: netlock notices that nobody listens to it any more and gives the lock back.
use strict;
use warnings;
use Carp;

# new(URL) returns when the lock is held. $NETLOCK in the environment names the program.
sub new {
    my ($class, $url) = @_;
    my $program = $ENV{NETLOCK} || 'netlock';
    my $pid     = open my $from, '-|', $program, $url or croak "cannot run $program: $!";
    my $self    = bless { from => $from, pid => $pid, owner => $$ }, $class;
    my $answer  = readline $from;
    return $self if defined $answer && $answer eq "OK\n";
    $self->release;
    $answer = "$program said nothing\n" unless defined $answer;
    croak "no lock: $answer";
}

# held reads the dots that netlock prints, and is false when it has ended, which means that the lock was lost.
sub held {
    my $self = shift;
    return '' unless $self->{pid};
    while (1) {
        vec(my $waiting = '', fileno $self->{from}, 1) = 1;
        return 1 unless select $waiting, undef, undef, 0;
        sysread $self->{from}, my $dots, 512 or return '';
    }
}

# release gives the lock back; true if it was ours until now. A child that was forked meanwhile has a copy of the object, which must not
# release anything, and a copy of the pipe: so closing ours would not be noticed, and netlock is told with a signal.
sub release {
    my $self = shift;
    return unless $self->{owner} == $$;
    my $pid = delete $self->{pid} or return;
    local ($!, $?);
    kill TERM => $pid;
    return close $self->{from};    # waits for netlock, and is false if its exit status is not 0
}

sub DESTROY { $_[0]->release }

1;
