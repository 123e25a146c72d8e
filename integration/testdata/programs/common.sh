# The common part of the shell programs of this directory. The environment names the server (FTP_HOST, FTP_PORT, FTP_USER,
# FTP_PASSWORD), the program's directory on it (BASE), the local files to publish (LOCAL), the program (ID) and the pause between
# two tries (PAUSE). The test reads the steps. At the step STOP_AT the program stops. The programs write their
# names into the local file WITNESS when they enter and leave the lock.
set -eu
url=ftp://$FTP_HOST:$FTP_PORT
step() {
	echo "step $1"
	if [ "${STOP_AT-}" = "$1" ]; then sleep 600; fi
}
entered() { echo "in $ID" >>"$WITNESS"; }
leaving() { echo "out $ID" >>"$WITNESS"; }
# again is one more try, and fails when there were too many.
tries=0
again() {
	tries=$((tries + 1))
	[ $tries -lt 150 ] || exit 75
	sleep "$PAUSE"
}
lftp_do() {
	lftp -c "set net:max-retries 2; set net:timeout 20; set ftp:ssl-allow no; set cmd:fail-exit yes
open -u $FTP_USER,$FTP_PASSWORD $url
$1"
}
curl_do() { curl -sS --max-time 30 -u "$FTP_USER:$FTP_PASSWORD" "$@"; }
