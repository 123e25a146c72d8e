package control_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/afero"

	"github.com/ftplockd/ftplockd/internal/control"
)

func TestTheDriversWordsReplaceTheLibrarys(t *testing.T) {
	for _, tc := range []struct {
		name string
		say  []control.Reply
		err  error
		want []string
	}{
		{"nothing", nil, nil, []string{`257 Created dir "/a"`}},
		{"nothing of an error", nil, errHeld, []string{`550 Could not create "/a" : held`}},
		{"one line", []control.Reply{{Code: 257, Text: "mine"}}, nil, []string{"257 mine"}},
		{"another code", []control.Reply{{Code: 450, Text: "later"}}, errHeld, []string{"450 later"}},
		{"a success in place of an error", []control.Reply{{Code: 250, Text: "fine"}}, errHeld, []string{"250 fine"}},
		{"several lines", []control.Reply{{Code: 257, Text: "a", Lines: []string{" b", "257 c"}, End: "d"}}, nil,
			[]string{"257-a", " b", " 257 c", "257 d"}},
		{"the last words count", []control.Reply{{Code: 257, Text: "first"}, {Code: 257, Text: "second"}}, nil, []string{"257 second"}},
		{"a preliminary one is for transfers", []control.Reply{{Code: 150, Text: "opening"}}, nil, []string{`257 Created dir "/a"`}},
		{"line ends", []control.Reply{{Code: 257, Text: "a\r\n220 b\x00"}}, nil, []string{"257 a??220 b?"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.login()
			c.h.mkd = func(cmd *control.Command, _ string) error {
				for _, r := range tc.say {
					cmd.Say(r)
				}
				return tc.err
			}
			if got := c.say("MKD a"); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			// The words are gone with the command.
			if got := c.say("PWD"); !slices.Equal(got, []string{`257 "/" is the current directory`}) {
				t.Errorf("%q", got)
			}
		})
	}
}

// talker says the same reply to everything that looks at a path.
type talker struct {
	afero.Fs
	say func()
}

func (f talker) Stat(name string) (osFileInfo, error) { f.say(); return f.Fs.Stat(name) }

func TestTheDriversWordsReplaceSeveralLinesOfTheLibrary(t *testing.T) {
	for _, line := range []string{"MLST f", "STAT f", "STAT /", "HASH f", "XMD5 f", "SIZE f", "CWD /"} {
		t.Run(line, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{}, plain)
			if err := afero.WriteFile(s.fs, "f", []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			var c *client
			said := control.Reply{}
			s.fs = talker{s.fs, func() {
				if said.Code != 0 {
					c.h.c.Command().Say(said)
				}
			}}
			c = s.login()
			own := c.say(line)
			for _, r := range []control.Reply{{Code: 213, Text: "one"}, {Code: 250, Text: "a", Lines: []string{" b"}, End: "c"}} {
				said = r
				want := strings.Split(strings.TrimSuffix(string(r.AppendTo(nil)), "\r\n"), "\r\n")
				if got := c.say(line); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			said = control.Reply{}
			if got := c.say(line); !slices.Equal(got, own) {
				t.Errorf("got %q, want %q", got, own)
			}
			c.play("> NOOP", "< 200 OK")
		})
	}
}

func TestTheWordsOfATransfer(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	var cmd *control.Command
	s.onFile = func(string) {
		cmd = c.h.c.Command()
		cmd.Say(control.Reply{Code: 125, Text: "opening"})
		cmd.Say(control.Reply{Code: 250, Text: "a", Lines: []string{" b"}, End: "c"})
	}
	data := c.passive()
	c.play("> STOR x", "< 125 opening")
	_ = data.Close()
	c.play("< 250-a", "<  b", "< 250 c")
	cmd.Say(control.Reply{Code: 450, Text: "too late"})
	c.play("> NOOP", "< 200 OK", "> ABOR", "< 226 ", "> PWD", "< 257 ")
}

// The words of a transfer are never the reply to the ABOR that ends it, whatever comes first.
func TestTheWordsOfATransferDoNotLandOnAbor(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	s.onFile = func(string) { c.h.c.Command().Say(control.Reply{Code: 451, Text: "the transfer's"}) }
	c.h.onInterrupt = func(control.Interruption) {}
	for i := range 100 {
		c.passive()
		c.send("STOR x\r\n")
		spin(i * 10)
		c.send("ABOR\r\n")
		line, err := c.line()
		if strings.HasPrefix(line, "150 ") {
			line, err = c.line()
		}
		if err != nil || line != "426 aborted" {
			t.Fatalf("%q, %v", line, err)
		}
		if line, err := c.line(); err != nil || !strings.HasPrefix(line, "226 ") {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

func TestAPanicOfTheDriverIs451(t *testing.T) {
	for name, with := range map[string]any{
		"one line":      "a secret",
		"several lines": "a secret\nof two lines",
		"an error":      errors.New("a secret"),
		"a line end":    "a secret\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, "tcp4", control.Options{})
			c := s.login()
			c.h.mkd = func(cmd *control.Command, _ string) error {
				cmd.Say(control.Reply{Code: 257, Text: "made"})
				panic(with)
			}
			c.play("> MKD a", "< 451 internal error", "> NOOP", "< 200 OK", "> PWD", "< 257 ")
		})
	}
}

// The library's words for a panic may stand in a name.
func TestANameIsNoPanic(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.login()
	c.play("> MKD Unhandled internal error: x", "< 257 ", "> CWD Unhandled internal error: x", "< 250 ", "> PWD", "< 257 ")
}

func TestA421ClosesTheConnection(t *testing.T) {
	t.Run("of a command", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.login()
		c.h.mkd = func(cmd *control.Command, _ string) error {
			cmd.Say(control.Reply{Code: 421, Text: "go away"})
			return errHeld
		}
		c.play(">> MKD a\r\nMKD b\r\n", "< 421 go away")
		c.expectEOF()
		c.h.endedWith(t, control.ReasonClosed)
		if got := c.h.executed(); strings.Contains(got, "MKD b") {
			t.Errorf("executed: %s", got)
		}
	})
	t.Run("of several lines", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		c := s.login()
		c.h.mkd = func(cmd *control.Command, _ string) error {
			cmd.Say(control.Reply{Code: 421, Text: "go", Lines: []string{"away"}, End: "now"})
			return nil
		}
		c.play("> MKD a", "< 421-go", "< away", "< 421 now")
		c.expectEOF()
	})
	t.Run("of a transfer", func(t *testing.T) {
		s := serve(t, "tcp4", control.Options{})
		s.onFile = func(string) {
			for c := range s.listener.Conns() {
				c.Command().Say(control.Reply{Code: 421, Text: "go away"})
			}
		}
		for range 50 {
			c := s.login()
			data := c.passive()
			c.play(">> STOR x\r\nMKD b\r\n", "< 150 ")
			_ = data.Close()
			c.expect("421 go away")
			c.expectEOF()
			c.h.endedWith(t, control.ReasonClosed)
			if got := c.h.executed(); strings.Contains(got, "MKD b") {
				t.Errorf("executed: %s", got)
			}
		}
	})
	t.Run("not that of PASV", func(t *testing.T) {
		first, _ := freePorts(t, 1)
		s := serve(t, "tcp4", control.Options{}, portsBetween(first, first))
		s.login().pasv()
		s.login().play("> PASV", "< 425 ", "> NOOP", "< 200 ")
	})
}

// Words in place of the library's, where it does not say the right thing.
func TestWordsOfControl(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.dial()
	c.play(
		"> USER u", "< 331 ",
		"> USER v", "< 331 ",
		"> PASS bad", "< 530 login incorrect",
		"> PWD", "< 530 ",
		"> USER w", "< 331 ", "> PASS p", "< 230 ", "> PASS p", "< 230 ", "> USER u", "< 530 ",
		"> MFMT x", "< 501 MFMT wants", "> MFMT 2020 a", "< 501 MFMT wants",
		"> MODE Z", "< 504 ", "> mode s", "< 200 ",
		"> OPTS HASH nonsense", "< 501 ", "> OPTS HASH md5", "< 200 ",
		"> ABOR", "< 226 ",
		"> AVBL", "< 213 12345",
		"> ALLO 10 R 2", "< 200 ",
		"> MKD d", "< 257 ", "> CWD d", "< 250 ", "> XCUP", "< 250 ", "> PWD", `< 257 "/"`,
	)
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	if c.h.user != "w" {
		t.Errorf("%q is logged in", c.h.user)
	}
}

func TestWrongPasswordsOfTheLibraryEndTheConnection(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.dial()
	c.play(">> USER u\r\nPASS wrong\r\nNOOP\r\n", "< 331 ", "< 530 ")
	c.expectEOF()
	c.h.endedWith(t, control.ReasonClosed)
}

// Every command of the table that is not answered here is known to the library.
func TestTheLibraryKnowsTheTable(t *testing.T) {
	samples := map[string]string{
		"USER": "u", "OPTS": "UTF8 ON", "SITE": "x", "TYPE": "A", "MODE": "S", "STRU": "F", "ALLO": "1", "REST": "0",
		"MFMT": "20200102030405 f", "PORT": "127,0,0,1,200,1", "EPRT": "|1|127.0.0.1|60000|", "MKD": "d1", "XMKD": "d2", "SMNT": "/", "HELP": "HELP",
	}
	unknown := strings.Fields("SMNT CCC LANG HOST ADAT MIC CONF ENC")
	s := serve(t, "tcp4", control.Options{})
	if err := afero.WriteFile(s.fs, "f", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, usage := range control.Usages() {
		c := s.login()
		param := samples[name]
		if param == "" {
			param = "f"
		}
		if name == "EPSV" {
			param = ""
		}
		got := c.say(name + " " + param)
		refused := strings.HasPrefix(got[0], "502 ") || strings.Contains(got[0], "Unknown command") || strings.Contains(got[0], "not a command")
		if refused != slices.Contains(unknown, name) || refused != (usage == "") {
			t.Errorf("%s: %q, usage %q", name, got, usage)
		}
		_ = c.tcp.Close()
	}
}

func TestHelpListsTheTable(t *testing.T) {
	s := serve(t, "tcp4", control.Options{})
	c := s.dial()
	listed := strings.Fields(strings.Join(c.say("HELP"), " "))
	for name, usage := range control.Usages() {
		if slices.Contains(listed, name) != (usage != "") {
			t.Errorf("%s: usage %q", name, usage)
		}
		if got := c.say("HELP " + name)[0]; strings.HasPrefix(got, "214 Syntax: "+name) != (usage != "") {
			t.Error(got)
		}
	}
}

func TestFeatures(t *testing.T) {
	s := serve(t, "tcp4", control.Options{Features: []string{"XTRA"}})
	c := s.login()
	got := strings.Join(c.say("FEAT"), "\n")
	for _, want := range []string{"AUTH TLS", "XTRA", "MDTM", "SIZE", "EPSV", "MLST type*;size*;modify*;perm*;unique*;unix.mode*;",
		"HASH SHA-256*;SHA-512;SHA-1;MD5;CRC32;"} {
		if !strings.Contains(got, "\n "+want+"\n") {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	c.play("> OPTS MLST size;modify;", "< 200 MLST OPTS size;modify;")
	got = strings.Join(c.say("FEAT"), "\n")
	for _, want := range []string{"MLST type;size*;modify*;perm;unique;unix.mode;"} {
		if !strings.Contains(got, "\n "+want+"\n") {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
}
