# 2. A release publisher. curl, a connection for each step: locks by MKD, uploads the new index inside the lock directory,
# compares, and renames it over the live one.
. "$(dirname "$0")/common.sh"
name=app-archive.json
lock=$BASE/.$name.desktop_updater.lock
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
give_up() {
	echo "$1"
	curl_do -I -o /dev/null -Q "DELE $lock/$name" "$url/" || true
	leaving
	curl_do -I -o /dev/null -Q "RMD $lock" "$url/"
	exit 1
}
step begin
until curl_do -I -o /dev/null -Q "MKD $lock" "$url/" 2>/dev/null; do again; done
entered
step locked
curl_do -o "$work/before" "$url$BASE/$name" || give_up "no index"
if cmp -s "$work/before" "$LOCAL/index"; then give_up "nothing new"; fi
step upload
curl_do --ftp-create-dirs -T "$LOCAL/index" "$url$lock/$name" || give_up "not uploaded"
step uploaded
curl_do -o "$work/staged" "$url$lock/$name" || give_up "not there"
cmp "$work/staged" "$LOCAL/index" || give_up "not the same"
step compared
curl_do -o "$work/still" "$url$BASE/$name" || give_up "no index any more"
cmp "$work/before" "$work/still" || give_up "somebody else has published"
curl_do -I -o /dev/null -Q "RNFR $lock/$name" -Q "RNTO $BASE/$name" "$url/" || give_up "not published"
step published
curl_do -o "$work/after" "$url$BASE/$name" || give_up "not readable"
cmp "$work/after" "$LOCAL/index" || give_up "not what was published"
leaving
curl_do -I -o /dev/null -Q "RMD $lock" "$url/"
step unlocked
