# Uploads or downloads a file under a lock, some rounds, and logs when it has the lock.
# usage: worker.pl host port user password id up|down rounds log
use strict;
use warnings;
use Net::FTP;
my ($host, $port, $user, $password, $id, $role, $rounds, $log) = @ARGV;

sub note { open(my $f, '>>', $log) or die $!; syswrite($f, "$_[0] $id\n") or die $! }

my $ftp = Net::FTP->new($host, Port => $port, Timeout => 20) or die "cannot connect: $@\n";
$ftp->login($user, $password) or die $ftp->message;
$ftp->binary;
for my $round (1 .. $rounds) {
    until ($ftp->mkdir('phone_lock')) { select(undef, undef, undef, 0.01) }
    note('begin');
    if ($role eq 'up') {
        my $text = "$id-$round\n" x 4000;
        open(my $in, '<', \$text) or die $!;
        $ftp->put($in, "phone.$id") or die $ftp->message;
        $ftp->delete('phone.tsv') or die $ftp->message;
        $ftp->rename("phone.$id", 'phone.tsv') or die $ftp->message;
    } else {
        open(my $out, '>', \my $text) or die $!;
        $ftp->get('phone.tsv', $out) or die $ftp->message;
        my ($first) = $text =~ /^(.*\n)/ or die "empty\n";
        $text eq $first x 4000 or die "torn\n";
    }
    note('end');
    $ftp->rmdir('phone_lock') or die $ftp->message;
}
$ftp->quit;
