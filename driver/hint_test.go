package driver

import (
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestADirectoryWhoseNameLooksLikeALockIsMadeWithAHint(t *testing.T) {
	const noRule, otherCase = " as a directory, not a lock: no rule makes this name a lock", " as a directory, not a lock: lock names are matched in their own case"
	var log logged
	s := start(t, func(s *setup) { s.log = log.logger() })
	s.play(t, `
		a MKD /phone.lock => 257 "/phone.lock" created`+noRule+`
		a MKD /PHONE_LOCK => 257 "/PHONE_LOCK" created`+otherCase+`
		a MKD /Phone.Lock => 257 "/Phone.Lock" created`+noRule+`
		a MKD /Locks => 257 "/Locks" created
		a MKD /Locks/a => 257 "/Locks/a" created`+otherCase+`
		a MKD /block => 257 "/block" created
		a MKD /phone_lock => 257 "/phone_lock" locked, *
		# no hint of what was not made
		a MKD /phone.lock => 550 /phone.lock: is there already
		a RMD /phone.lock => 250 *
		a MKD /phone.lock => 257 *`+noRule+`
		- quit a`)
	s.halt()
	if n := strings.Count(log.String(), "looks like a lock's"); n != 5 {
		t.Errorf("%d lines, want one for each directory:\n%s", n, log.String())
	}
}

func TestALockOfTheWholeTreeIsNoneInAHome(t *testing.T) {
	plays(t, `
		- mkdir /home/bob/locks
		bob MKD /locks/a => 257 "/locks/a" created as a directory, not a lock: this account has a home, and no rule matches the name there
		bob MKD /a_lock => 257 "/a_lock" locked, *
		a MKD /locks/a => 257 "/locks/a" locked, *`)
}

func TestALockWhoseNameEndsInBlanksIsNone(t *testing.T) {
	c := start(t).as("phoneacc")
	c.want("MKD /host_lock  ", `257 "/host_lock  " created as a directory, not a lock: the name ends in blanks`)
}

func TestALockWhereALinkLeadsElsewhereIsNone(t *testing.T) {
	inBothModes(t, `
		- mkdir /real
		- link /fast real
		- link /ever/fast ../real
		a MKD /ever/fast/x => 257 "/ever/fast/x" created as a directory, not a lock: a symbolic link leads elsewhere, and no rule matches the name there
		a MKD /fast/y => 257 "/fast/y" created
		a MKD /fast/a_lock => 257 "/fast/a_lock" locked, *`)
}

func TestDebugShowsCommandsWithTheirRepliesAndNoSecrets(t *testing.T) {
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

func TestADirectoryThatADefaultRuleWouldMakeALockNamesTheRule(t *testing.T) {
	replaced, err := lock.NewRules([]lock.Rule{{Match: "/lost/**"}, {Match: "**/*.lock"}})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(s *setup) { s.settings.ReplacedRules = replaced })
	const names = " created as a directory, not a lock: the configuration replaces the default rule "
	s.play(t, `
		a MKD /lost => 257 "/lost" created
		a MKD /lost/a => 257 "/lost/a"`+names+`/lost/**
		a MKD /x.lock => 257 "/x.lock"`+names+`**/*.lock
		a MKD /a_lock => 257 "/a_lock" locked, *`)
}
