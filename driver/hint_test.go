package driver

import (
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// MKD of a name that looks like a lock's, but is none, gives the reason in its 257 and in the log.
func TestMkdExplainsWhyANameIsNoLock(t *testing.T) {
	replaced, err := lock.NewRules([]lock.Rule{{Match: "/lost/**"}, {Match: "**/*.lck"}})
	if err != nil {
		t.Fatal(err)
	}
	var log logged
	s := start(t, func(s *setup) { s.log, s.settings.ReplacedRules = log.logger(), replaced })
	s.play(t, strings.ReplaceAll(`
		- mkdir /home/bob/locks
		- mkdir /real
		- link /fast real
		- link /ever/fast ../real
		a MKD /phone.lock => 257 "/phone.lock" NOLOCK no rule makes this name a lock
		a MKD /Phone.Lock => 257 "/Phone.Lock" NOLOCK no rule makes this name a lock
		a MKD /PHONE_LOCK => 257 "/PHONE_LOCK" NOLOCK lock names are matched in their own case
		a MKD /Locks => 257 "/Locks" created
		a MKD /Locks/a => 257 "/Locks/a" NOLOCK lock names are matched in their own case
		bob MKD /locks/a => 257 "/locks/a" NOLOCK this account has a home, and no rule matches the name there
		a MKD /ever/fast/x => 257 "/ever/fast/x" NOLOCK a symbolic link leads elsewhere, and no rule matches the name there
		a MKD /lost => 257 "/lost" created
		a MKD /lost/a => 257 "/lost/a" NOLOCK the configuration replaces the default rule /lost/**
		a MKD /x.lck => 257 "/x.lck" NOLOCK the configuration replaces the default rule **/*.lck
		# no hint
		a MKD /block => 257 "/block" created
		a MKD /fast/y => 257 "/fast/y" created
		a MKD /phone.lock => 550 /phone.lock: is there already
		a MKD /phone_lock => 257 "/phone_lock" locked, *
		a MKD /fast/a_lock => 257 "/fast/a_lock" locked, *
		bob MKD /a_lock => 257 "/a_lock" locked, *
		a MKD /locks/a => 257 "/locks/a" locked, *`, "NOLOCK", "created as a directory, not a lock:"))
	s.as("phoneacc").want("MKD /host_lock  ", `257 "/host_lock  " created as a directory, not a lock: the name ends in blanks`)
	s.halt()
	if n := strings.Count(log.String(), "looks like a lock's"); n != 9 {
		t.Errorf("%d lines in the log, want one for each directory:\n%s", n, log.String())
	}
}

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
