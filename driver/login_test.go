package driver

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"
)

func TestLogin(t *testing.T) {
	s := start(t)
	s.dial().play(`
		C: PWD
		S: 530 please log in with USER and PASS
		C: MKD /locks/a
		S: 530 *
		C: STAT /
		S: 530 *
		C: STAT
		S: 211-*
		S:  connected from 127.0.0.1
		S:  type ASCII
		S:  not logged in
		S: 211 *
		C: PASS secret
		S: 503 *
		C: USER
		S: 501 *
		C: user phoneacc
		S: 331 *
		C: PASS wrong
		S: 530 login incorrect
		C: USER nobody
		S: 331 *
		C: PASS secret
		S: 530 login incorrect
		C: USER far
		S: 331 *
		C: PASS secret
		S: 530 login incorrect
		C: USER near
		S: 331 *
		C: pass secret
		S: 230 logged in as near; *
		-- another name without its password
		C: USER boss
		S: 530 you are logged in: *
		C: USER near
		S: 530 you are logged in: *
		C: PASS anything
		S: 230 *
		C: ACCT x
		S: 202 *
		C: SITE LOCK BREAK /locks/a
		S: 550 only administrators break locks
		C: QUIT
		S: 221 *`)
	s.dial6().login("near")
}

func TestTooManyWrongPasswordsEndTheConnection(t *testing.T) {
	s := start(t)
	c := s.dial()
	for range maxFailures - 1 {
		c.want("USER phoneacc", "331 *")
		c.want("PASS wrong", "530 *")
	}
	c.want("USER phoneacc", "331 *")
	c.want("PASS wrong", "421 too many wrong passwords")
	c.ended()
}

// slowAccounts answer when they are told to.
type slowAccounts struct {
	testAccounts
	asked, answer chan struct{}
}

func (a slowAccounts) Authenticate(ctx context.Context, t Attempt) (Account, error) {
	a.asked <- struct{}{}
	select {
	case <-a.answer:
		return a.testAccounts.Authenticate(ctx, t)
	case <-ctx.Done():
		return Account{}, ctx.Err()
	}
}

func TestALoginThatTakesLongHoldsUpNobodyElse(t *testing.T) {
	slow := slowAccounts{someAccounts(), make(chan struct{}), make(chan struct{})}
	s := start(t)
	busy := s.as("phoneacc")
	settings := *s.driver.settings.Load()
	settings.Accounts = slow
	s.driver.SetSettings(settings)
	c := s.dial()
	c.send("USER other\r\nPASS secret\r\nMKD /locks/a\r\n")
	<-slow.asked
	busy.want("MKD /locks/b", "257 *")
	close(slow.answer)
	c.play(`
		S: 331 *
		S: 230 *
		S: 257 "/locks/a" *`)
}

func TestReinLogsOut(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	c.play(`
		C: MKD /gone/a
		S: 257 *
		C: MKD /locks/kept
		S: 257 *
		C: TYPE I
		S: 200 *
		C: CWD /locks
		S: 250 *
		C: RNFR /gone
		S: 550 *
		C: REIN
		S: 220 *
		C: PWD
		S: 530 *`)
	if s.held("/gone/a") || !s.held("/locks/kept") {
		t.Error("REIN is not what a disconnect is to the locks")
	}
	c.login("other")
	c.play(`
		C: PWD
		S: 257 "/" is the current directory
		C: STAT
		S: 211-*
		S:  connected from *
		S:  type ASCII
		S:  logged in as other
		S:  in /
		S: 211 *
		C: RMD /locks/kept
		S: 550 /locks/kept: not yours: held by phoneacc@127.0.0.1 for 0s
		C: REIN
		S: 220 *`)
	c.login("phoneacc") // the session that acquired it has ended
	c.want("RMD /locks/kept", "250 *")
	c.store("/after", "x")
}

// What one client has said is not said for the next one (RFC 959 section 4.1.1).
func TestReinForgetsWhatWasSaid(t *testing.T) {
	s := start(t)
	s.write("/f", "hello\n")
	c := s.as("phoneacc")
	c.play(`
		C: TYPE I
		S: 200 *
		C: OPTS HASH MD5
		S: 200 *
		C: OPTS MLST size;
		S: 200 *
		C: ALLO 100
		S: 200 *
		C: REST 3
		S: 350 *
		C: PASV
		S: 227 *
		C: REIN
		S: 220 *`)
	if n := s.listeners(); n != 0 {
		t.Errorf("%d passive ports are open", n)
	}
	c.login("other")
	c.play(`
		C: MLST /f
		S: 250-*
		S:  type=file;*
		S: 250 *
		C: RETR /f
		S: 425 *`)
	if got := c.fetch("RETR /f"); got != "hello\r\n" {
		t.Errorf("RETR: %q", got)
	}
	c.want("TYPE I", "200 *")
	c.store("/g", "x")
	// Which digest HASH sends may stay, if FEAT says so.
	if got := c.ask("HASH /f"); strings.HasPrefix(got, "213 MD5 ") != strings.Contains(c.ask("FEAT"), ";MD5*;") {
		t.Errorf("FEAT tells of another digest than HASH sends: %s", got)
	}
}

func TestReinForgetsWhatWasToBeRenamed(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	c := s.as("phoneacc")
	c.want("RNFR /f", "350 *")
	c.want("REIN", "220 *")
	c.login("other")
	c.want("RNTO /g", "503 *")
	s.wantContent("/f", "x")
}

// A client that takes a lock, logs out and leaves: nothing is left of it, the second time included.
func TestASessionThatLoggedOutIsForgotten(t *testing.T) {
	s := start(t)
	c := s.as("phoneacc")
	c.want("REIN", "220 *")
	c.Close()
	s.alone()
	if n := len(s.table.Sessions()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

func TestAReadOnlyAccountLocksAndChangesNothing(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/f", "x")
		s.mkdir("/dir")
		c := dial("reader")
		const no = ": this account may not change files"
		c.play(`
			C: MKD /locks/a
			S: 257 *
			C: RMD /locks/a
			S: 250 *
			C: MKD /new
			S: 550 /new` + no + `
			C: RMD /dir
			S: 550 /dir` + no + `
			C: DELE /f
			S: 550 /f` + no + `
			C: RNFR /f
			S: 550 /f` + no + `
			C: MFMT 20200101000000 /f
			S: 550 /f` + no + `
			C: SITE CHMOD 777 /f
			S: 550 /f: this account may not change modes
			C: SITE LOCK BREAK /locks/a
			S: 550 only administrators break locks`)
		for _, command := range []string{"STOR /f", "STOR /new", "APPE /f", "STOU", "STOU /f"} {
			c.check(command, c.upload(command, "y"), "550 *"+no)
		}
		if got := c.fetch("RETR /f"); got != "x" {
			t.Errorf("RETR: %q", got)
		}
		if got := c.fetch("MLSD /"); !fits("*;perm=el;*; dir\r\n*;perm=r;*; f\r\n*", got) {
			t.Errorf("MLSD: %q", got)
		}
	})
}

func TestAWriteOnlyAccountReadsNothing(t *testing.T) {
	s := start(t)
	s.write("/f", "x")
	c := s.as("writer")
	c.store("/g", "y")
	c.want("MKD /locks/a", "257 *")
	c.store("/locks/a/note", "y")
	for _, command := range []string{"RETR /f", "RETR /.locks.json", "RETR /locks/a/note"} {
		_, r := c.download(command)
		c.check(command, r, "550 *: this account may not read files")
	}
	for _, verb := range []string{"HASH", "XCRC", "XMD5", "XSHA256"} {
		c.want(verb+" /f", "550 /f: this account may not read files")
	}
	c.want("RMD /locks/a", "550 /locks/a: the directory is not empty: *")
	c.want("DELE /locks/a/note", "250 *")
	c.want("RMD /locks/a", "250 *")
}

func TestAnAccountSeesItsHomeOnly(t *testing.T) {
	inEachMode(t, func(t *testing.T, s *server, dial func(string) *conn) {
		s.write("/secret", "x")
		bob, a := dial("bob"), dial("phoneacc")
		bob.play(`
			C: PWD
			S: 257 "/work" is the current directory
			C: MKD a_lock
			S: 257 "/work/a_lock" locked, *
			C: CWD ../../../..
			S: 250 /*
			C: PWD
			S: 257 "/" is the current directory
			C: SIZE /secret
			S: 550 /secret: no such file or directory
			C: SIZE ../../secret
			S: 550 /secret: no such file or directory
			C: RMD /
			S: 550 /: *
			C: SITE LOCKS
			S: 211-1 locks are held:
			S:  /work/a_lock: held by bob@127.0.0.1 for *
			S: 211 End`)
		bob.store("/f", "y")
		s.wantContent("/home/bob/f", "y")
		bob.check("STOU", bob.upload("STOU /work", "z"), "226 *")
		a.play(`
			C: MKD /home/bob/work/a_lock
			S: 550 /home/bob/work/a_lock: held by bob@*
			C: MKD /locks/a
			S: 257 *
			C: RNFR /home
			S: 550 /home: there are held locks below it`)
		bob.want("SITE LOCKS /work/*", "211-1 *")
		if got := bob.fetch("RETR /.locks.json"); strings.Contains(got, "/home") || strings.Contains(got, "/locks/a") || !strings.Contains(got, `"/work/a_lock"`) {
			t.Errorf("status: %s", got)
		}
	})
}

func TestAHomeThatIsALinkIsWhereItLeads(t *testing.T) {
	s := start(t)
	s.mkdir("/real/work")
	s.link("real", "/linked")
	settings := *s.driver.settings.Load()
	settings.Accounts = testAccounts{"eve": {Name: "eve", Read: true, Write: true, Home: "/linked", Start: "/none"}}
	s.driver.SetSettings(settings)
	c := s.as("eve")
	c.play(`
		C: PWD
		S: 257 "/" is the current directory
		C: MKD /work/x_lock
		S: 257 "/work/x_lock" locked, *
		C: SITE LOCKS
		S: 211-1 *
		S:  /work/x_lock: *
		S: 211 *`)
	if !s.held("/real/work/x_lock") {
		t.Error("the lock has another name")
	}
}

func TestTLSThatIsRequired(t *testing.T) {
	s := start(t, tlsRequired)
	s.write("/f", "secret")
	s.dial().play(`
		C: USER phoneacc
		S: 530 this server wants TLS: say AUTH TLS first
		C: PASS secret
		S: 503 *
		C: PBSZ 0
		S: 503 *
		C: PROT P
		S: 503 *
		C: AUTH KERBEROS
		S: 504 *`)
	c := s.dial()
	c.want("AUTH TLS", "234 *")
	c.Conn = tls.Client(c.tcp, &tls.Config{InsecureSkipVerify: true})
	c.in.Reset(c.Conn)
	c.play(`
		C: AUTH TLS
		S: 503 *
		C: PBSZ 0
		S: 200 PBSZ=0`)
	c.login("phoneacc")
	c.play(`
		C: REIN
		S: 502 *
		C: PROT C
		S: 534 *
		C: PROT S
		S: 536 *
		C: PROT X
		S: 504 *`)
	// RFC 4217 section 9: data in the clear is refused.
	_, r := c.download("RETR /f")
	c.check("RETR", r, "522 *")
	// A port that was prepared for the clear is none for TLS.
	nc := c.data()
	c.play(`
		C: PROT P
		S: 200 *
		C: RETR /f
		S: 425 *`)
	nc.Close()
	c.private = true
	if got := c.fetch("RETR /f"); got != "secret" {
		t.Errorf("RETR: %q", got)
	}
}

func TestTLSThatIsOptional(t *testing.T) {
	s := start(t, secure)
	s.write("/f", "x")
	if got := s.as("phoneacc").fetch("RETR /f"); got != "x" {
		t.Errorf("in the clear: %q", got)
	}
	c := s.dial()
	c.upgrade()
	c.login("phoneacc")
	if got := c.fetch("RETR /f"); got != "x" {
		t.Errorf("under TLS: %q", got)
	}
	c.want("PROT C", "200 *")
	c.private = false
	if got := c.fetch("RETR /f"); got != "x" {
		t.Errorf("data in the clear: %q", got)
	}
}

func TestImplicitTLS(t *testing.T) {
	s := start(t, tlsRequired)
	s.write("/f", "x")
	nc, err := net.Dial("tcp", s.addrTLS)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	secure := tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
	c := &conn{t: t, server: s, tcp: nc.(*net.TCPConn), Conn: secure, in: bufio.NewReader(secure)}
	c.play(`
		S: 220 *
		C: AUTH TLS
		S: 503 *`)
	c.login("phoneacc")
	_, r := c.download("RETR /f")
	c.check("RETR in the clear", r, "522 *")
	c.play(`
		C: PBSZ 0
		S: 200 *
		C: PROT P
		S: 200 *`)
	c.private = true
	if got := c.fetch("RETR /f"); got != "x" {
		t.Errorf("RETR: %q", got)
	}
	c.store("/g", "y")
	s.wantContent("/g", "y")
	c.want("MKD /gone/a", "257 *")
	c.want("QUIT", "221 *")
	c.ended()
	s.alone()
	if s.held("/gone/a") {
		t.Error("the lock is held still")
	}
}

func TestWithoutACertificateThereIsNoTLS(t *testing.T) {
	start(t).dial().play(`
		C: AUTH TLS
		S: 534 *
		C: PBSZ 0
		S: 503 *`)
}

// Under TLS a listing needs no write deadline only: a client that never begins the handshake is given up.
func TestAHandshakeThatNeverComesIsGivenUp(t *testing.T) {
	t.Parallel()
	s := start(t, tlsRequired, func(o *setup) { o.settings.DataTimeout = 200 * time.Millisecond })
	s.write("/f", "new")
	c := s.dial()
	c.upgrade()
	c.login("phoneacc")
	for _, command := range []string{"RETR /f", "LIST", "STOR /f"} {
		nc := c.data()
		c.want(command, "150 *")
		c.check(command, c.reply(), "426 *: the data connection stood still for too long")
		nc.Close()
	}
	s.wantContent("/f", "new")
}

func TestDataInTheClearAfterProtP(t *testing.T) {
	s := start(t, secure)
	s.write("/f", "old")
	c := s.dial()
	c.upgrade()
	c.login("phoneacc")
	nc := c.data()
	c.want("STOR /f", "150 *")
	nc.Write([]byte("not a TLS record"))
	c.check("STOR", c.reply(), "426 /f: PROT P was said, but the data connection does not begin with TLS")
	s.wantContent("/f", "old")
}
