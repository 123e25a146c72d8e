# 1. A deployment action. lftp, a connection for each step: takes the lock by mkdir, puts a sentinel beside it, mirrors over
# several connections at once, removes sentinel and lock.
. "$(dirname "$0")/common.sh"
lock=$BASE/.lftp-deployment.lock
step begin
until lftp_do "mkdir $lock" 2>/dev/null; do again; done
entered
step locked
sentinel=$BASE/.lftp-deployment.$(date +%s).$$
lftp_do "put /dev/null -o $sentinel"
step marked
step upload
lftp_do "mirror -R --transfer-all --parallel=3 $LOCAL $BASE/site"
step mirrored
lftp_do "rm -f $sentinel"
step unmarked
leaving
lftp_do "rmdir $lock"
step unlocked
