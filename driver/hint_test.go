package driver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestADirectoryWhoseNameLooksLikeALockIsMadeWithAHint(t *testing.T) {
	var log logged
	s := start(t, func(s *setup) { s.log = log.logger() })
	c := s.as("phoneacc")
	const noRule, otherCase = " as a directory, not a lock: no rule makes this name a lock", " as a directory, not a lock: lock names are matched in their own case"
	c.want("MKD /phone.lock", `257 "/phone.lock" created`+noRule)
	c.want("MKD /PHONE_LOCK", `257 "/PHONE_LOCK" created`+otherCase)
	c.want("MKD /Phone.Lock", `257 "/Phone.Lock" created`+noRule)
	c.want("MKD /Locks", `257 "/Locks" created`)
	c.want("MKD /Locks/a", `257 "/Locks/a" created`+otherCase)
	c.want("MKD /block", `257 "/block" created`)
	c.want("MKD /phone_lock", `257 "/phone_lock" locked, *`)
	c.want("MKD /phone.lock", "550 *") // no hint of what was not made
	c.want("RMD /phone.lock", "250 *")
	c.want("MKD /phone.lock", "257 *"+noRule)
	c.want("QUIT", "221 *")
	c.ended()
	s.halt()
	if n := strings.Count(log.String(), "looks like a lock's"); n != 4 {
		t.Errorf("%d lines, want one for each name:\n%s", n, log.String())
	}
}

func TestALockOfTheWholeTreeIsNoneInAHome(t *testing.T) {
	plays(t, `
		- mkdir /home/bob/locks
		bob MKD /locks/a => 257 "/locks/a" created as a directory, not a lock: this account has a home, and no rule matches the name there
		bob MKD /a_lock => 257 "/a_lock" locked, *
		a MKD /locks/a => 257 "/locks/a" locked, *`)
}

func TestTheNamesOfHintsAreBounded(t *testing.T) {
	var h hinted
	for i := range 2 * maxHinted {
		h.first(lock.Name(fmt.Sprint(i)))
	}
	if len(h.names) != maxHinted || h.first("0") || h.first("x") {
		t.Errorf("%d names", len(h.names))
	}
}

func TestDebugShowsCommandsWithTheirRepliesAndNoSecrets(t *testing.T) {
	var log logged
	s := start(t, func(s *setup) { s.log = log.logger() })
	c := s.dial()
	c.want("USER phoneacc", "331 *")
	c.want("PASS hush1", "530 *")
	c.want("PASS\thush2", "500 *")
	c.want("PASShush3", "500 *")
	c.want("ACCT hush4", "202 *")
	c.want("USER phoneacc", "331 *")
	c.want("pass secret", "230 *")
	c.want("SITE  lock as hush5", "200 *")
	c.want("MKD /a_lock", "257 *")
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
	if t.Failed() {
		t.Log(text)
	}
}
