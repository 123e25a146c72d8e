package driver

import (
	"strings"
	"testing"
)

func keeping(o *setup) {
	all := someAccounts()
	for _, name := range []string{"phoneacc", "other"} {
		a := all[name]
		a.Keep = true
		all[name] = a
	}
	o.settings.Accounts = all
}

// breakOff sends a part of an upload, fewer bytes than it announced, and leaves.
func breakOff(t *testing.T, s *server, account, command, part string) {
	t.Helper()
	c := s.as(account)
	c.want("TYPE I", "200 *")
	c.want("ALLO 100", "200 *")
	if r := c.upload(command, part); !strings.HasPrefix(r, "426 ") {
		t.Fatal(r)
	}
	c.want("QUIT", "221 *")
	s.alone()
}

func TestABrokenUploadIsGoneOnWithByItsAccountAlone(t *testing.T) {
	s := start(t, keeping)
	s.write("/f", "old")
	breakOff(t, s, "phoneacc", "STOR /f", "the first half, ")
	if got := s.content("/f"); got != "old" {
		t.Fatal("published:", got)
	}
	s.as("phoneacc").want("SIZE /f", "213 3") // others and itself read what is published
	other := s.as("other")
	other.play(`
		C: SIZE /f
		S: 213 3
		C: TYPE I
		S: 200 *
		C: NLST
		S: 425 *`)
	if got := other.fetch("NLST"); got != "ever\r\nf\r\ngone\r\nhome\r\nlocks\r\nopen\r\n" {
		t.Errorf("others see: %q", got)
	}
	mine := s.as("phoneacc")
	mine.play(`
		C: TYPE I
		S: 200 *
		C: REST 16
		S: 350 *`)
	mine.upload("STOR /f", "the second")
	s.wantContent("/f", "the first half, the second")
	mine.want("SIZE f", "213 26")
}

func TestAnUploadFromTheBeginningDropsWhatWasKept(t *testing.T) {
	s := start(t, keeping)
	breakOff(t, s, "phoneacc", "STOR /f", "a half")
	c := s.as("phoneacc")
	c.want("TYPE I", "200 *")
	c.want("SIZE f", "213 6")
	c.upload("STOR /f", "whole")
	s.wantContent("/f", "whole")
	c.want("SIZE f", "213 5")
}

func TestWhatCannotBeGoneOnWithIsNotKept(t *testing.T) {
	s := start(t, keeping)
	for _, command := range []string{"STOU /f", "APPE /f"} {
		breakOff(t, s, "phoneacc", command, "a half")
		s.wantContent("/f", "(none)")
	}
	s2 := start(t) // nothing is kept without being asked for
	breakOff(t, s2, "phoneacc", "STOR /f", "a half")
	s2.wantContent("/f", "(none)")
	s2.as("phoneacc").want("SIZE /f", "550 *")
}

// SIZE and then APPE is how curl resumes.
func TestAppeGoesOnWithWhatWasKept(t *testing.T) {
	s := start(t, keeping)
	breakOff(t, s, "phoneacc", "STOR /f", "the first half, ")
	c := s.as("phoneacc")
	c.want("TYPE I", "200 *")
	c.want("SIZE /f", "213 16")
	c.upload("APPE /f", "the second")
	s.wantContent("/f", "the first half, the second")
	c.upload("APPE /f", ", and more")
	s.wantContent("/f", "the first half, the second, and more")
}
