#!/bin/sh
# A page that counts its visitors in a file on an FTP server. One instance works at a time, on any number of web servers. It tries ten
# times to get the lock, and then asks the visitor to come again.
#
# Environment: FTP_HOST, FTP_PORT, FTP_USER, FTP_PASSWORD; LOCK_AGE: the seconds until the server ends the lock
# of a dead page (30); WORK: the seconds of work for each visitor (0). The log is on standard error.
set -u
lock=/locks/highlander
tries=10
age=${LOCK_AGE:-30}
server=ftp://${FTP_HOST:-127.0.0.1}:${FTP_PORT:-2121}
me=highlander-$(uname -n)-$$-$(date +%s) # the job key of this page in all its connections
account=$(printf '%s:%s' "${FTP_USER:-ftp}" "${FTP_PASSWORD:-}" | sed 's/[\\"]/\\&/g')

# client ARGUMENTS: runs curl with a time limit. ps does not show the password.
client() {
	curl --silent --show-error --max-time "$((age / 4 + 2))" --quote "*SITE LOCK AS $me" --config /dev/fd/3 "$@" 3<<-EOF
		user = "$account"
	EOF
}

# ask COMMAND: prints the server's reply, or the error of curl. The star allows other servers to refuse the SITE commands.
ask() {
	client --verbose --head --quote "*SITE LOCK AGE $age" --quote '*SITE WAIT 1' --quote "$1" "$server/" 2>&1 |
		tr -d '\r' | sed -n -e '/^> [MR][KM]D /,$ s/^< //p' -e '/^curl: /p' | head -n 1
}

# page STATUS TITLE TEXT: prints the page for the visitor.
page() {
	printf 'Status: %s\n' "$1"
	[ -z "${again:-}" ] || printf 'Retry-After: %s\n' "$again"
	printf 'Content-Type: text/html\n\n<!DOCTYPE html>\n<title>%s</title>\n<h1>%s</h1>\n<p>%s</p>\n' "$2" "$2" "$3"
}

fail() {
	echo "fail $$ $1" >&2
	page '500 Internal Server Error' 'Something is broken' 'We have been told.'
	exit 1
}

# facts: prints the facts of the lock, "type=lock;account=ftp;address=10.0.0.5;left=347.996;", or nothing if it is free.
facts() {
	client --verbose --head --quote "*SITE LOCK INFO $lock" "$server/" 2>&1 | tr -d '\r' | sed -n 's/^< *\(type=lock;[^ ]*;\) .*/\1/p' | head -n 1
}

# fact NAME: prints one of $facts.
fact() {
	printf '%s\n' ";$facts" | sed -n "s/.*;$1=\([^;]*\);.*/\1/p"
}

# sorry REPLY: prints the apology.
sorry() {
	facts=$(facts)
	holder=$(fact account | sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g')${facts:+@$(fact address)}
	again=10
	left=$(fact left)
	left=${left%.*}
	[ -z "$left" ] || [ "$left" -ge "$again" ] || again=$((left + 1))
	echo "sorry $$ $1" >&2
	page '503 Service Unavailable' 'There can be only one' \
		"${holder:-Somebody} is at work here just now. Please try again in $again seconds."
	exit 0
}

release() {
	reply=$(ask "RMD $lock")
	case $reply in 250*) ;; *) echo "lost $$ $reply" >&2 ;; esac
}

case ${WORK:-0} in
*[!0-9.]* | *.*.* | .) fail "WORK must be a number of seconds, not ${WORK}" ;;
esac

try=1
while reply=$(ask "MKD $lock"); do
	case $reply in
	257*) break ;;
	550*) [ -n "$(facts)" ] || sleep 1 ;; # a server with facts has waited already
	*) sleep 1 ;;
	esac
	if [ "$try" -ge "$tries" ]; then
		case $reply in 550*) sorry "$reply" ;; *) fail "$reply" ;; esac
	fi
	try=$((try + 1))
done
trap release EXIT
trap 'exit 1' HUP INT PIPE TERM
echo "begin $$" >&2

number=$(client "$server/visitors.txt" 2>/dev/null)
case $? in
0) ;;
78) number=0 ;; # the file does not exist yet
*) fail 'the download failed' ;;
esac
sleep "${WORK:-0}"
number=$((number + 1))
echo "$number" | client --upload-file - "$server/visitors.txt" || fail 'the upload failed'
echo "end $$ $number" >&2
page '200 OK' 'Welcome' "You are visitor number $number."
