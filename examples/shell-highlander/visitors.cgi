#!/bin/sh
# A page that counts its visitors in a file on an FTP server. There can be only one of it at work at a time, on however many
# web servers: it tries ten times to get the lock, and then asks the visitor politely to come again.
#
# Environment: FTP_HOST, FTP_PORT, FTP_USER, FTP_PASSWORD; LOCK_AGE: after so many seconds the server ends the lock of
# a page that died (30); WORK: so many seconds of work for each visitor (0). What happens is logged on standard error.
set -u
lock=/locks/highlander
tries=10
age=${LOCK_AGE:-30}
server=ftp://${FTP_HOST:-127.0.0.1}:${FTP_PORT:-2121}
me=highlander-$(uname -n)-$$-$(date +%s) # in all connections of this page, and in no other's
account=$(printf '%s:%s' "${FTP_USER:-ftp}" "${FTP_PASSWORD:-}" | sed 's/[\\"]/\\&/g')

# client ARGUMENTS: curl in one connection, for not too long. The password stays out of what ps shows.
client() {
	curl --silent --show-error --max-time "$((age / 4 + 2))" --quote "*SITE LOCK AS $me" --config /dev/fd/3 "$@" 3<<-EOF
		user = "$account"
	EOF
}

# ask COMMAND: prints the server's reply, or else what curl says. Other servers may not know the SITE commands ("*").
ask() {
	client --verbose --head --quote "*SITE LOCK AGE $age" --quote '*SITE WAIT 1' --quote "$1" "$server/" 2>&1 |
		tr -d '\r' | sed -n -e '/^> [MR][KM]D /,$ s/^< //p' -e '/^curl: /p' | head -n 1
}

# page STATUS TITLE TEXT: what the visitor sees.
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

# facts: what the server tells programs of the lock, "type=lock;account=ftp;address=10.0.0.5;left=347.996;": nothing if it is free.
facts() {
	client --verbose --head --quote "*SITE LOCK INFO $lock" "$server/" 2>&1 | tr -d '\r' | sed -n 's/^< *\(type=lock;[^ ]*;\) .*/\1/p' | head -n 1
}

# fact NAME: one of $facts.
fact() {
	printf '%s\n' ";$facts" | sed -n "s/.*;$1=\([^;]*\);.*/\1/p"
}

# sorry REPLY: the polite page.
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
	550*) [ -n "$(facts)" ] || sleep 1 ;; # a server with facts has waited for us
	*) sleep 1 ;;
	esac
	if [ "$try" -ge "$tries" ]; then
		case $reply in 550*) sorry "$reply" ;; *) fail "$reply" ;; esac
	fi
	try=$((try + 1))
done
trap release EXIT
trap 'exit 1' HUP INT TERM
echo "begin $$" >&2

number=$(client "$server/visitors.txt" 2>/dev/null)
case $? in
0) ;;
78) number=0 ;; # there is no such file yet
*) fail 'the download failed' ;;
esac
sleep "${WORK:-0}"
number=$((number + 1))
echo "$number" | client --upload-file - "$server/visitors.txt" || fail 'the upload failed'
echo "end $$ $number" >&2
page '200 OK' 'Welcome' "You are visitor number $number."
