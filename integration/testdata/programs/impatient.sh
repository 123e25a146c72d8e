# 1, the other runner. It takes every lock for stale: it lists, deletes the sentinel and the lock of its holder, and tries again.
# It prints the replies.
. "$(dirname "$0")/common.sh"
lock=.lftp-deployment.lock
until lftp_do "cd $BASE; mkdir $lock" 2>/dev/null; do
	for name in $(lftp_do "cd $BASE; cls -1aB"); do
		case $name in
		*/ | $lock*) ;;
		.lftp-deployment.*) lftp_do "cd $BASE; rm $name" && echo "deleted $name" ;;
		esac
	done
	lftp_do "cd $BASE; rmdir $lock" 2>&1 && echo "removed" || true
	again
done
entered
leaving
lftp_do "cd $BASE; rmdir $lock"
