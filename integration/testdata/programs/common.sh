# What the shell programs of this directory share. The environment says where the server is (FTP_HOST, FTP_PORT, FTP_USER,
# FTP_PASSWORD), where the program works on it (BASE), what it publishes (LOCAL), who it is (ID) and how long it pauses between
# two tries (PAUSE). The test reads the steps and kills; WITNESS is a local file that says who is in and knows nothing of the lock.
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
	lftp -c "set net:max-retries 2; set net:timeout 20; set ftp:ssl-allow no; set cmd:fail-exit yes; ${LFTP_SET-}
open -u $FTP_USER,$FTP_PASSWORD $url
$1"
}
curl_do() { curl -sS --max-time 30 -u "$FTP_USER:$FTP_PASSWORD" "$@"; }
