package NetLock;
# A lock on another machine, as an object: it is held from new to release, or until the object is gone.
#   my $lock = NetLock->new($host, $port, $user, $password, '/data/phone_lock', 5);
use strict;
use warnings;
use FindBin;
use IPC::Open2;

sub new {
    my ($class, @arguments) = @_;
    my $self = bless {}, $class;
    $self->{pid} = open2($self->{from}, $self->{to}, $^X, "$FindBin::Bin/locksmith.pl", @arguments);
    my $answer = readline $self->{from};
    die "There is no lock\n" unless defined $answer && $answer eq "OK\n";
    return $self;
}

sub locksmith { $_[0]{pid} }

sub release {
    my $self = shift;
    my $pid = delete $self->{pid} or return;
    close $self->{to};
    local $?;
    waitpid $pid, 0;
    return $? == 0;
}

sub DESTROY { $_[0]->release }

1;
