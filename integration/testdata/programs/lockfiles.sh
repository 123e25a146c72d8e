# 4. A deployment of projects whose files are called composer.lock, yarn.lock and Gemfile.lock. curl and lftp; takes no lock.
. "$(dirname "$0")/common.sh"
step begin
for name in composer.lock yarn.lock Gemfile.lock; do
	step "upload-$name"
	curl_do -T "$LOCAL/index" "$url$BASE/$name"
	curl_do -T "$LOCAL/index" "$url$BASE/$name" # over the first
	step "renamed-$name"
	curl_do -T "$LOCAL/index" "$url$BASE/$name.new"
	curl_do -I -o /dev/null -Q "RNFR $BASE/$name" -Q "RNTO $BASE/$name.old" "$url/"
	curl_do -I -o /dev/null -Q "RNFR $BASE/$name.new" -Q "RNTO $BASE/$name" "$url/"
	step "deleted-$name"
	curl_do -I -o /dev/null -Q "DELE $BASE/$name.old" "$url/"
	curl_do "$url$BASE/$name" | cmp - "$LOCAL/index"
done
step mirror
lftp_do "mirror -R --transfer-all $LOCAL $BASE/project"
lftp_do "rm $BASE/yarn.lock; mv $BASE/Gemfile.lock $BASE/Gemfile.txt"
step mirrored
