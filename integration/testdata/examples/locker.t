# What Locker does, feature by feature; see examples/perl-locker/README.md.
use strict;
use warnings;
use Locker;
use POSIX '_exit';
use Sys::Hostname;
use Test::More;
use Time::HiRes 'time';

# died returns how the code died.
sub died { my $code = shift; return eval { $code->(); 1 } ? 'it did not' : $@ }

{
    package Ours;    # a subclass with defaults of its own
    our @ISA = 'Locker';
    sub default_arguments { return { %{ Locker->default_arguments }, directory => '/ours' } }
}

my $locker = Locker->new;
my $other  = Locker->new({ password => $ENV{FTP_PASSWORD} });

# lock
my $sent = time;
my $lock = $locker->lock('job');
isa_ok $lock, 'Locker::Lock';
like died(sub { my $l = $other->lock('job') }),  qr/^could not lock <job>: .*held by .* for \d+s/, 'one has it, and the other is told who';
like died(sub { my $l = $locker->lock('job') }), qr/^could not lock <job>: /, 'not twice by the same one either';
ok $locker->lock('another job'), 'another name is another lock';
like died(sub { $locker->lock('void') }),                    qr/nobody keeps/, 'a lock must be kept';
like died(sub { my $l = $locker->lock('') }),                qr/no name/,      'an empty name is none';
like died(sub { my $l = $locker->lock(undef) }),             qr/no name/,      'nor is undef';
like died(sub { my $l = $locker->lock('x', { expires => $_ }) }), qr/expires is/, "expires $_" for 0, -1, 1.5, 'soon';
like died(sub { my $l = $locker->lock('x', { wait => 'long' }) }), qr/wait is/, 'wait long';
is_deeply [ sort $locker->names ], ['job'], 'what was refused is not locked';

# who has it
is $lock->lockstring, 'job', 'its name';
is $lock->locker, $locker, 'its locker';
is_deeply $lock->locked_by, { host => hostname(), pid => $$, guid => $lock->guid }, 'who has it';
is_deeply $other->locked_by('job'), $lock->locked_by, 'others see who has it';
is $other->locked_by('no job'), undef, 'nobody has what is not locked';
like $lock->guid, qr/^[0-9a-f]{40}$/, 'a guid';
like died(sub { my $l = Ours->new({ password => 'wrong' })->lock('x') }), qr/^cannot log in: /, 'a wrong password is told';

# The note of one holder is never taken for that of the next, also if the one changes for the other while we read.
{
    my ($first, $get, $second) = ($locker->lock('changing'), \&Net::FTP::get);
    no warnings 'redefine';
    local *Net::FTP::get = sub {
        my @got = $get->(@_);
        $second ||= do { $first->unlock; $locker->lock('changing') };
        return @got;
    };
    is $other->locked_by('changing')->{guid}, $second->guid, 'who has it now';
}

# expiry
cmp_ok abs($lock->expires - $sent - 3600), '<', 30, 'it expires after an hour unless one says otherwise';
my $short = $locker->lock('short', { expires => 100 });
cmp_ok abs($short->expires - time - 100), '<', 30, 'or when one says';
my $long = $locker->lock('long', { expires => 7200 });
cmp_ok abs($long->expires - time - 3600), '<', 30, 'or when the rule of the server says';
my $was = $short->expires;
select undef, undef, undef, 1.1;
cmp_ok $short->expires(time + 99), '>', $was, 'it can be prolonged';
like died(sub { $short->expires(time + 1000) }), qr/cannot last so long/, 'up to its age';
like died(sub { $short->expires('tomorrow') }),  qr/a time/, 'to a time';
my $brief = $locker->lock('brief', { expires => 3 });
ok $brief->is_locked, 'it is locked';
select undef, undef, undef, 0.1 while $brief->is_locked && time < $sent + 30;
ok !$brief->is_locked, 'an expired lock is not locked, without a purge';
my $next = $other->lock('brief', { wait => 10 });
ok $next, 'and somebody else can have it';
ok !$brief->is_locked, 'which does not make it ours again';
like died(sub { $brief->expires(time) }), qr/^could not renew/, 'it cannot be prolonged any more';
like died(sub { $brief->unlock }), qr/^could not unlock <brief>: .*(?:taken away|not yours)/, 'unlock tells that it was lost';
ok $next->is_locked, 'and leaves the next one alone';
cmp_ok $next->token, '>', $brief->token, 'whose token is higher';

# unlock
ok $short->is_locked, 'it is locked';
$short->unlock;
ok !$short->is_locked, 'unlocked, it is not';
is died(sub { $short->unlock }), 'it did not', 'unlocking twice is allowed';
{
    my $inner = $locker->lock('short', { expires => 100 });
    ok $inner, 'it can be locked again';
}
ok $other->lock('short'), 'the end of the scope has given it back';
eval { my $inner = $locker->lock('short'); die "oops\n" };
is $@, "oops\n", 'an exception goes through';
is $other->locked_by('short'), undef, 'and gives it back';

# fork
sub child {
    my $code = shift;
    my $pid  = fork;
    if (!$pid) {
        $SIG{__WARN__} = sub { print "# @_"; _exit(9) };
        $code->();
        exit 0;
    }
    waitpid $pid, 0;
    return $? >> 8;
}
is child(sub { undef $lock }), 0, 'a child that drops its copy of the lock does not even try to give it back';
ok $lock->is_locked, 'and it is not';
is child(sub { }), 0, 'nor does one that ends';
ok $lock->is_locked, 'and it is not';
is child(sub { exit(died(sub { $lock->unlock }) =~ /not yours/ ? 7 : 0) }), 7, 'nor can it unlock it';
is child(sub { my $mine = $locker->lock('of the child'); exit($mine->is_locked ? 7 : 0) }), 7, 'it can have locks of its own';
is $locker->locked_by('of the child'), undef, 'which end with it';
ok $lock->is_locked, 'and not with ours';

# a connection that is lost
my $old = delete $locker->{ftp};    # the server does not know it yet
ok $lock->is_locked, 'after a lost connection the lock is still there';
is died(sub { $lock->unlock }), 'it did not', 'and can be unlocked';
is $other->locked_by('job'), undef, 'by which it comes free';
close $old;
my $again = $locker->lock('job');
close $locker->{ftp};
ok $again->is_locked, 'after the end of a connection the lock is still there';
is died(sub { $again->unlock }), 'it did not', 'and can be unlocked';

# names
my $odd = "a/b .. %2F *?[]\n\x{263a}:";
my $strange = $locker->lock($odd);
my ($found) = grep { /b/ && !/brief/ } $locker->names;
utf8::decode($found);
is $found, $odd, 'any string is a name';
ok $locker->lock(lc $odd . 'x'), 'and no other one is the same';
is died(sub { my $l = Ours->new->lock('mine') }), 'it did not', 'a subclass has its own defaults';

$strange->unlock;
undef $_ for $next, $long;
done_testing;
