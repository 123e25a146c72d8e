package driver

import (
	"strings"
	"testing"
)

func TestTheDebugLogHasCommandsAndRepliesWithoutSecrets(t *testing.T) {
	var log logged
	s := start(t, func(s *setup) { s.log = log.logger() })
	c := s.dial()
	c.play(`
		USER phoneacc => 331 *
		PASS hush1 => 530 *
		PASS\x09hush2 => 500 *
		PASShush3 => 500 *
		ACCT hush4 => 202 *
		USER phoneacc => 331 *
		pass secret => 230 *
		SITE  lock as hush5 => 200 *
		MKD /a_lock => 257 *`)
	id := s.table.Sessions()[0].Owner.Session.String() // as "ftplockd sessions" has it
	c.want("MLST /", "250-*")
	c.want("QUIT", "221 *")
	c.ended()
	s.halt()
	text := log.String()
	for _, want := range []string{
		`msg=command connection=1 remote=127.0.0.1 line="USER phoneacc"`, `msg=reply connection=1 remote=127.0.0.1 text="331 `, `line="PASS ****"`, `text="530 login incorrect"`,
		`session=` + id + ` line="MKD /a_lock"`, `text="257 \"/a_lock\" locked, token 1, `, `line="SITE LOCK AS ****"`, `text="250-`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, never := range []string{"hush", "HUSH", "secret"} {
		if strings.Contains(text, never) {
			t.Errorf("%s is in the log", never)
		}
	}
}
