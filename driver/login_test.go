package driver

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/config"
)

func TestLogin(t *testing.T) {
	s := start(t)
	s.dial().play(`
		PWD => 530 please log in with USER and PASS
		STAT => 211-*\n connected from 127.0.0.1\n type ASCII\n not logged in\n211 *
		PASS secret => 503 *
		user phoneacc => 331 *
		PASS wrong => 530 login incorrect
		USER nobody => 331 *
		PASS secret => 530 login incorrect
		PASS secret => 503 send USER first
		USER phoneacc => 331 *
		pass secret => 230 logged in as phoneacc; *
		USER boss => 530 you are logged in already: *
		PASS anything => 503 you are logged in already
		SITE LOCK BREAK /locks/a => 550 only administrators break locks
		QUIT => 221 *`)
	c := s.dial()
	for range maxFailures - 1 {
		c.want("USER phoneacc", "331 *")
		c.want("PASS wrong", "530 *")
	}
	c.want("USER phoneacc", "331 *")
	c.want("PASS wrong", "421 too many wrong passwords")
	c.ended()
}

func TestReadersAndWritersAreRefusedTheRest(t *testing.T) {
	const no = ": this account may not change files"
	inBothModes(t, `
		- write /f x
		- mkdir /dir
		reader MKD /locks/a => 257 *
		reader RMD /locks/a => 250 *
		reader MKD /new => 550 /new`+no+`
		reader RMD /dir => 550 /dir`+no+`
		reader DELE /f => 550 /f`+no+`
		reader RNFR /f => 550 /f`+no+`
		reader MFMT 20200101000000 /f => 550 /f`+no+`
		reader SITE CHMOD 777 /f => 550 /f: this account may not change modes
		reader SITE LOCK BREAK /locks/a => 550 only administrators break locks
		reader STOR /f <<< y => 550 *`+no+`
		reader STOR /new <<< y => 550 *`+no+`
		reader APPE /f <<< y => 550 *`+no+`
		reader STOU <<< y => 550 *`+no+`
		reader RETR /f => 226 * >>> x
		reader MLSD / => 226 * >>> *; dir\r\n*; f\r\n*
		writer MKD /locks/a => 257 *
		writer STOR /locks/a/note <<< y => 226 *
		writer RETR /f => 550 /f: this account may not read files
		writer RETR /.locks.json => 550 *: this account may not read files
		writer RETR /locks/a/note => 550 *: this account may not read files
		writer HASH /f => 550 /f: this account may not read files
		writer XMD5 /f => 550 /f: this account may not read files
		writer RMD /locks/a => 550 /locks/a: the directory is not empty: *
		writer DELE /locks/a/note => 250 *
		writer RMD /locks/a => 250 *`)
}

func TestAnAccountSeesItsHomeOnly(t *testing.T) {
	inBothModes(t, `
		- write /secret x
		- mkdir /real/work
		- link /linked real
		bob PWD => 257 "/work" is the current directory
		bob MKD a_lock => 257 "/work/a_lock" locked, *
		bob CWD ../../../.. => 250 /*
		bob PWD => 257 "/" is the current directory
		bob SIZE /secret => 550 /secret: no such file or directory
		bob SIZE ../../secret => 550 /secret: no such file or directory
		bob RMD / => 550 /: is the root of the tree
		bob RNFR / => 550 /: is the root of the tree
		bob STOR /f <<< y => 226 *
		- file /home/bob/f y
		bob STOU /work <<< z => 226 *
		a MKD /home/bob/work/a_lock => 550 /home/bob/work/a_lock: held by bob@*
		a MKD /locks/a => 257 *
		a RNFR /home => 550 /home: there are held locks below it
		bob SITE LOCKS => 211-1 locks are held:\n /work/a_lock: held by bob@127.0.0.1 for *; /work/a_lock\n211 End
		bob SITE LOCKS /work/* => 211-1 *
		bob RETR /.locks.json => 226 * >>> {*"locks": [\n    {\n      "name": "/work/a_lock",*"waiting": 0\n    }\n  ]\n}\n
		# a home may be a link
		eve PWD => 257 "/" is the current directory
		eve MKD /work/x_lock => 257 "/work/x_lock" locked, *
		- held /real/work/x_lock
		eve SITE LOCKS => 211-1 locks are held:\n /work/x_lock: *
		eve SITE CHMOD 0 / => 550 /: is the root of the tree`, func(o *setup) {
		o.settings.Accounts = testAccounts{
			"eve":      {Name: "eve", Chmod: true, Home: "/linked", Start: "/none"},
			"bob":      someAccounts()["bob"],
			"phoneacc": someAccounts()["phoneacc"],
		}
	})
}

func TestTLSOfDataConnections(t *testing.T) {
	s := start(t, tlsRequired)
	s.write("/f", "x")
	s.mkdir("/empty")
	s.dial().want("USER phoneacc", "530 this server requires TLS: send AUTH TLS first")
	c := s.as("phoneacc")
	if got := c.fetch("RETR /f"); got != "x" {
		t.Errorf("RETR: %q", got)
	}
	if got := c.fetch("NLST /empty"); got != "" { // the end of a stream without a byte
		t.Errorf("NLST: %q", got)
	}
	// A port that was opened for plain data is not used for TLS.
	c.want("PROT C", "534 *")
	settings := *s.driver.settings.Load()
	settings.TLS.Mode = config.TLSOptional
	s.driver.SetSettings(settings)
	c.want("PROT C", "200 *")
	c.Data = nil
	if got := c.fetch("RETR /f"); got != "x" {
		t.Errorf("plain data: %q", got)
	}
	defer c.data().Close()
	c.want("PROT P", "200 *")
	c.want("RETR /f", "425 *")
	// RFC 4217 section 9: plain data is refused.
	c.want("PROT C", "200 *")
	settings.TLS.Mode = config.TLSRequired
	s.driver.SetSettings(settings)
	_, r := c.execute("RETR /f", "")
	c.check("RETR without TLS", r, "522 *")
}

// brokenAccounts cannot check passwords.
type brokenAccounts struct{ err error }

func (b brokenAccounts) Authenticate(context.Context, config.Attempt) (config.Account, error) {
	return config.Account{}, b.err
}

// An error that is not about the password is none of the client's.
func TestALoginFailsForAnotherReasonThanThePassword(t *testing.T) {
	var text logged
	s := start(t, func(o *setup) { o.log = slog.New(slog.NewTextHandler(&text, nil)) })
	for err, reply := range map[error]string{
		context.Canceled:           "421 the server is shutting down",
		errors.New("no such hash"): "421 the server failed to check the password: see its log",
	} {
		s.driver.SetSettings(Settings{Accounts: brokenAccounts{err}})
		c := s.dial()
		c.want("USER phoneacc", "331 *")
		c.want("PASS secret", reply)
		c.ended()
	}
	text.mu.Lock()
	defer text.mu.Unlock()
	if !strings.Contains(text.text.String(), "no such hash") || strings.Contains(text.text.String(), "canceled") {
		t.Errorf("the log: %s", text.text.String())
	}
}

// A relative path leads to no other directory while the disk is at fault.
func TestALoginStartsInItsDirectoryThoughTheDiskIsAtFault(t *testing.T) {
	s := start(t, func(o *setup) { o.settings.Accounts = testAccounts{"eve": {Name: "eve", Home: "/", Start: "/cut"}} })
	s.mkdir("/cut")
	s.driver.tree = &exhausted{s.driver.tree, 1000}
	s.play(t, `
		eve PWD => 257 "/cut" *
		eve STOR f <<< x => *
		- file /f (none)`)
}
