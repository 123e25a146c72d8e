# 1, the other runner. It believes that every lock is stale: it lists, deletes the sentinel and the lock of whoever has it, and
# tries again. It says what it was told.
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
