# Has the name "ftp.test" the addresses of the environment (ADDRESSES, separated by spaces), as a name with several A records
# has them, in this order. usage: perl -Itestdata -MTwoAddresses program.pl ...
package TwoAddresses;
use strict;
use IO::Socket::IP;
use Socket ();

no warnings 'redefine';
*IO::Socket::IP::getaddrinfo = sub {
    my ($host, @rest) = @_;
    return Socket::getaddrinfo($host, @rest) unless defined $host && $host eq 'ftp.test';
    my @all;
    for my $address (split ' ', $ENV{ADDRESSES}) {
        my ($error, @found) = Socket::getaddrinfo($address, @rest);
        return $error if $error;
        push @all, @found;
    }
    return ('', @all);
};

1;
