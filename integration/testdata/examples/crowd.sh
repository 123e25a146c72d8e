# sh crowd.sh COUNT COMMAND...: runs the command COUNT times at once, with the numbers from 1 in $N. It fails if one of them fails.
N=0 last=$1
shift
while [ $N -lt "$last" ]; do
	N=$((N + 1))
	export N
	"$@" &
	started="$started $!"
done
for one in $started; do
	wait "$one" || exit 1
done
