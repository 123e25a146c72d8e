package driver

import (
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// A note is shown with each lock that its session acquires afterwards. The facts have it percent-encoded.
func TestNotesAreShownWithTheLock(t *testing.T) {
	inBothModes(t, `
		a MKD /before_lock => 257 *
		a SITE LOCK NOTE  web3   4711 backup.sh; 50%  => 200 applies to the locks that this session acquires from now on
		a MKD /a_lock => 257 "/a_lock" locked, token #, expires in 1h0m0s
		b MKD /a_lock => 550 /a_lock: held by phoneacc@127.0.0.1 (web3 4711 backup.sh; 50%) for 0s, expires in 1h0m0s
		b MKD /before_lock => 550 /before_lock: held by phoneacc@127.0.0.1 for 0s, expires in 1h0m0s
		b SITE LOCK INFO /a_lock => 211-Lock /a_lock\n held by phoneacc@127.0.0.1 (web3 4711 backup.sh; 50%) for 0s, *\n type=lock;*;address=127.0.0.1;note=web3%204711%20backup.sh%3B%2050%25;since=*; /a_lock\n211 End
		b SITE LOCKS => 211-2 locks are held:\n /a_lock: held by *;note=web3*; /a_lock\n /before_lock: held by *;address=127.0.0.1;since=*; /before_lock\n211 End
		b SITE LOCK AS job => 200 *
		b SITE LOCK NOTE wartet => 200 *
		b SITE WAIT 60 => 200 *
		b MKD /a_lock ...
		- waiting /a_lock 1
		a RMD /a_lock => 250 *
		b => 257 *
		a MKD /a_lock => 550 /a_lock: held by other@127.0.0.1 (wartet) for *
		# An adoption without a note keeps it.
		b2 SITE LOCK AS job => 200 *
		b2 MKD /a_lock => 257 *adopted from token *
		a MKD /a_lock => 550 /a_lock: held by other@127.0.0.1 (wartet) for *
		b3 SITE LOCK AS job => 200 *
		b3 SITE LOCK NOTE neu => 200 *
		b3 MKD /a_lock => 257 *adopted from token *
		a MKD /a_lock => 550 /a_lock: held by other@127.0.0.1 (neu) for *
		boss FEAT => *\n SITE LOCK FACTS *;note;*\n SITE LOCK NOTE\n*`, oneHour)
}

func oneHour(o *setup) { o.rules = []lock.Rule{{Match: "/**/*_lock", MaxAge: time.Hour}} }

func TestNotesAreOneShortLine(t *testing.T) {
	s := start(t, oneHour)
	a := s.as("phoneacc")
	long := strings.Repeat("é", 40)
	for note, want := range map[string]string{
		"":            "501 SITE LOCK NOTE needs an argument",
		" ":           "501 SITE LOCK NOTE needs an argument",
		long + "x":    "501 the note is longer than 80 bytes",
		"a\tb":        "501 the note has a character that is not printable",
		"a\u202eb":    "501 the note has a character that is not printable",
		"a\x1b[31mb":  "501 the note has a character that is not printable",
		"caf\xe9":     "501 the note is not UTF-8",
		"  " + long:   "200 *",
		"a  \t b":     "501 the note has a character that is not printable",
		"x (y) \"z\"": "200 *",
	} {
		a.want("SITE LOCK NOTE "+note, want)
	}
}

// A refusal has at most 128 bytes. The note is left out if the refusal would be longer.
func TestARefusalLeavesOutALongNote(t *testing.T) {
	s := start(t, oneHour)
	a, b := s.as("phoneacc"), s.as("other")
	const around = len("550 /a_lock: held by phoneacc@127.0.0.1 () for 0s, expires in 1h0m0s\r\n")
	note := strings.Repeat("n", 128-around)
	a.want("SITE LOCK NOTE "+note, "200 *")
	a.want("MKD /a_lock", "257 *")
	b.want("MKD /a_lock", "550 /a_lock: held by phoneacc@127.0.0.1 ("+note+") for 0s, expires in 1h0m0s")
	a.want("SITE LOCK NOTE "+note+"n", "200 *")
	a.want("MKD /b_lock", "257 *")
	b.want("MKD /b_lock", "550 /b_lock: held by phoneacc@127.0.0.1 for 0s, expires in 1h0m0s")
}
