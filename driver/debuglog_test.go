package driver

import (
	"strings"
	"testing"
)

func TestTheDebugLogHasCommandsAndRepliesWithoutSecrets(t *testing.T) {
	var log logged
	s := start(t, func(s *setup) { s.log = log.logger() })
	c := s.dial()
	c.transcript(`
		C: USER phoneacc
		S: 331 *
		C: PASS hush1
		S: 530 *
		C: PASS\x09hush2
		S: 500 *
		C: PASShush3
		S: 500 *
		C: ACCT hush4
		S: 202 *
		C: USER phoneacc
		S: 331 *
		C: pass secret
		S: 230 *
		C: SITE  lock as hush5
		S: 200 *
		C: MKD /a_lock
		S: 257 *`)
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
