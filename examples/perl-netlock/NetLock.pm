package NetLock;
# A lock as an object. It is held from new until release, or until the end of the object.
#
#   my $lock = NetLock->new('ftp://bob@ftp.example.com/phone_lock');    # or dies with the reason
#   ... work, for as long as it takes ...
#   $lock->held or die "the lock was lost";
#   undef $lock;                              # or $lock->release, or the end of the scope
#
# The program netlock holds the lock in a process of its own, and keeps its FTP connection alive. If this program dies, its pipe
# closes, and netlock releases the lock.
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

# held reads the dots that netlock prints. It is false if netlock has ended, because then the lock was lost.
sub held {
    my $self = shift;
    return '' unless $self->{pid};
    while (1) {
        vec(my $waiting = '', fileno $self->{from}, 1) = 1;
        return 1 unless select $waiting, undef, undef, 0;
        sysread $self->{from}, my $dots, 512 or return '';
    }
}

# release releases the lock; true if it was held until now. A forked child has a copy of the object, which releases nothing, and a copy
# of the pipe. So closing this end of the pipe is not enough: release also sends netlock a signal.
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
