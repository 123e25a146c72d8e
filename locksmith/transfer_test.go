package locksmith

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

const (
	passive  = "> EPSV\n< 229 here (|||2000|)\n"
	held42   = "> SITE LOCK INFO /a\n< 211-Lock /a\n<  held by me@10.0.0.9 for 5s, never expires, token 42\n< 211 End\n"
	gone42   = "> SITE LOCK INFO /a\n< 550 /a: not held\n"
	part     = "/f.*.part"
	announce = "> ALLO 3\n< 200 ok\n"
	stored   = "> STOR " + part + "\n< 150 go\nstored abc\n< 226 done\n> SIZE " + part + "\n< 213 3\n"
)

// slow takes its time before it ends.
type slow struct {
	io.Reader
	d time.Duration
}

func (s *slow) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		time.Sleep(s.d)
	}
	return n, err
}

var errSource = errors.New("the source failed")

func TestPut(t *testing.T) {
	for name, c := range map[string]struct {
		scripts []string
		source  io.Reader // nil: abc
		unknown bool      // its size
		check   time.Duration
		want    error
		says    string
		lost    bool
	}{
		"stores in one step where the server publishes what is complete": {
			scripts: []string{asLocks() + never42 + held42 + announce + passive + "> STOR /f\n< 150 go\nstored abc\n< 226 done\n" + giveBack},
		},
		"stores under a temporary name elsewhere, and renames": {
			scripts: []string{asOthers() + asked + same + announce + passive + stored + same + "> RNFR " + part + "\n< 350 to?\n> RNTO /f\n< 250 ok\n" + same + giveBack},
		},
		"deletes the old file where the server does not rename onto it": {
			scripts: []string{asOthers() + asked + same + announce + passive + stored + same +
				"> RNFR " + part + "\n< 350 to?\n> RNTO /f\n< 550 exists\n> DELE /f\n< 250 ok\n> RNFR " + part + "\n< 350 to?\n> RNTO /f\n< 250 ok\n" + same + giveBack},
		},
		"leaves the new file when it cannot be renamed after the old one is gone": {
			scripts: []string{asOthers() + asked + same + announce + passive + stored + same +
				"> RNFR " + part + "\n< 350 to?\n> RNTO /f\n< 550 exists\n> DELE /f\n< 250 ok\n> RNFR " + part + "\n< 350 to?\n> RNTO /f\n< 550 no\n" + same + giveBack},
			want: ErrRefused,
		},
		"removes the temporary file when it cannot be renamed": {
			scripts: []string{asOthers() + asked + same + announce + passive + stored + same +
				"> RNFR " + part + "\n< 350 to?\n> RNTO /f\n< 550 no\n> DELE /f\n< 550 none\n> DELE " + part + "\n< 250 ok\n" + same + giveBack},
			want: ErrRefused, says: "refused: /f: the server said 550 no to RNTO",
		},
		"renames nothing that has not arrived whole": {
			scripts: []string{asOthers() + asked + same + announce + passive + "> STOR " + part + "\n< 150 go\nstored abc\n< 226 done\n> SIZE " + part + "\n< 213 2\n" +
				"> DELE " + part + "\n< 250 ok\n" + same + giveBack},
			says: "/f: 3 bytes were sent and 2 arrived",
		},
		"renames nothing when the lock was lost meanwhile": {
			scripts: []string{asOthers() + asked + same + announce + passive + stored + "> MDTM /a\n< 550 gone\n> DELE " + part + "\n< 250 ok\n" + bye},
			want:    ErrLost, lost: true,
		},
		"sends nothing when the lock was lost before": {
			scripts: []string{asOthers() + asked + "> MDTM /a\n< 550 gone\n" + bye}, want: ErrLost, lost: true,
		},
		"does not end the file when the lock was lost meanwhile": {
			scripts: []string{asLocks() + never42 + held42 + announce + passive + "> STOR /f\n< 150 go\nstored abc\n< 426 cut\n" + bye, looked() + gone42 + bye},
			source:  &slow{strings.NewReader("abc"), time.Second}, check: 500 * time.Millisecond, want: ErrLost, lost: true,
		},
		"breaks off when its source fails": {
			scripts: []string{asOthers() + asked + same + passive + "> STOR " + part + "\n< 150 go\nstored ab\n< 426 cut\n> DELE " + part + "\n< 250 ok\n" + same + giveBack},
			source:  io.MultiReader(strings.NewReader("ab"), failing{}), unknown: true, want: errSource,
		},
		"breaks off when the source is shorter than announced": {
			scripts: []string{asOthers() + asked + same + announce + passive + "> STOR " + part + "\n< 150 go\nstored ab\n< 226 done\n> DELE " + part + "\n< 250 ok\n" + same + giveBack},
			source:  strings.NewReader("ab"), says: "/f: there are 2 bytes of the 3 that were announced",
		},
		"breaks off when the source is longer than announced": {
			scripts: []string{asOthers() + asked + same + announce + passive + "> STOR " + part + "\n< 150 go\nstored \n< 226 done\n> DELE " + part + "\n< 250 ok\n" + same + giveBack},
			source:  strings.NewReader("abcd"), says: "/f: there are more than the 3 bytes that were announced",
		},
		"sends nothing where there is no room": {
			scripts: []string{asLocks() + never42 + held42 + "> ALLO 3\n< 452 full\n" + giveBack},
			want:    ErrRefused,
		},
		"says why it was refused": {
			scripts: []string{asLocks() + never42 + held42 + announce + passive + "> STOR /f\n< 550 /f: protected by the lock /b, which you do not hold\n" + giveBack},
			want:    ErrRefused, says: "refused: /f: the server said 550 /f: protected by the lock /b, which you do not hold",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				o := s.options()
				if c.check > 0 {
					o.Check = c.check
				}
				l := mustAcquire(t, o)
				source, size := c.source, int64(3)
				if source == nil {
					source = strings.NewReader("abc")
				}
				if c.unknown {
					size = -1
				}
				err := l.Put(t.Context(), "/f", source, size)
				oneLine(t, err)
				if c.want != nil && !errors.Is(err, c.want) || c.says != "" && (err == nil || err.Error() != c.says) || c.want == nil && c.says == "" && err != nil {
					t.Error(err)
				}
				if err := l.Release(t.Context()); c.lost != errors.Is(err, ErrLost) || !c.lost && err != nil {
					t.Errorf("given back with %v", err)
				}
			})
		})
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errSource }

func TestPutIsBrokenOffWhenItsContextEnds(t *testing.T) {
	script := asOthers() + asked + same + passive + "> STOR " + part + "\n< 150 go\nstored ab\n< 426 cut\n> DELE " + part + "\n< 250 ok\n" + same + giveBack
	inBubble(t, []string{script}, func(t *testing.T, s *scripted) {
		l := mustAcquire(t, s.options())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		source := io.MultiReader(strings.NewReader("ab"), &slow{strings.NewReader(""), 2 * time.Second})
		if err := l.Put(ctx, "/f", source, -1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAHoldIsTakenUpAnewAfterAPut(t *testing.T) {
	inBubble(t, []string{
		asLocks() + never42 + held42 + announce + passive + "> STOR /f\n< 150 go\nstored abc\n< 226 done\n> SITE LOCK INFO /a\ndrop",
		asLocks() + held42 + "> MKD /a\n< 257 \"/a\" locked, token 50, never expires, adopted from token 42\n" + strings.ReplaceAll(held42, "42", "50") + giveBack,
	}, func(t *testing.T, s *scripted) {
		o := s.options()
		o.Check = time.Second
		l := mustAcquire(t, o)
		if err := l.Put(t.Context(), "/f", strings.NewReader("abc"), 3); err != nil {
			t.Error(err)
		}
		time.Sleep(2500 * time.Millisecond)
		if err := l.Release(t.Context()); err != nil || l.Token() != 50 {
			t.Error(err, l.Token())
		}
	})
}

func TestGet(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   error
		refuse bool // the writer fails
		got    string
	}{
		"downloads":                         {script: "> SIZE /f\n< 213 3\n" + passive + "> RETR /f\n< 150 go\ndata abc\n< 226 done\n", got: "abc"},
		"downloads what has no known size":  {script: "> SIZE /f\n< 550 no\n" + passive + "> RETR /f\n< 150 go\ndata abc\n< 226 done\n", got: "abc"},
		"sees that the file was cut off":    {script: "> SIZE /f\n< 213 3\n" + passive + "> RETR /f\n< 150 go\ndata ab\n< 226 done\n", got: "ab", want: io.ErrUnexpectedEOF},
		"says that there is none":           {script: "> SIZE /f\n< 550 no\n" + passive + "> RETR /f\n< 550 no such file\n", want: ErrRefused},
		"says that the writer failed":       {script: "> SIZE /f\n< 213 3\n" + passive + "> RETR /f\n< 150 go\ndata abc\n< 426 cut\n", refuse: true, want: errSource},
		"is told that the server broke off": {script: "> SIZE /f\n< 550 no\n" + passive + "> RETR /f\n< 150 go\ndata ab\n< 550 disk error\n", got: "ab", want: ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{asLocks() + never42 + held42 + c.script + giveBack}, func(t *testing.T, s *scripted) {
				l := mustAcquire(t, s.options())
				var got bytes.Buffer
				var to io.Writer = &got
				if c.refuse {
					to = refusing{}
				}
				n, err := l.Get(t.Context(), "/f", to)
				oneLine(t, err)
				if !errors.Is(err, c.want) || got.String() != c.got || n != int64(len(c.got)) {
					t.Errorf("%q, %d, %v", got.String(), n, err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, errSource }

func TestReleaseWaitsForATransfer(t *testing.T) {
	inBubble(t, []string{asLocks() + never42 + held42 + passive + "> STOR /f\n< 150 go\nstored abc\n< 226 done\n" + giveBack},
		func(t *testing.T, s *scripted) {
			l := mustAcquire(t, s.options())
			put := make(chan error, 1)
			go func() { put <- l.Put(t.Context(), "/f", &slow{strings.NewReader("abc"), 3 * time.Second}, -1) }()
			time.Sleep(time.Second)
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-put; err != nil {
				t.Error(err)
			}
		})
}

func TestALossIsNoticedDuringATransfer(t *testing.T) {
	inBubble(t, []string{asLocks() + never42 + held42 + passive + "> STOR /f\n< 150 go\nstored abc\n< 426 cut\n" + bye, looked() + held42 + gone42 + bye},
		func(t *testing.T, s *scripted) {
			o := s.options()
			o.Check = time.Second
			l := mustAcquire(t, o)
			put := make(chan error, 1)
			go func() { put <- l.Put(t.Context(), "/f", &slow{strings.NewReader("abc"), 10 * time.Second}, -1) }()
			began := time.Now()
			<-l.Done()
			if at := time.Since(began); at > 2*time.Second {
				t.Errorf("noticed after %v", at)
			}
			if err := <-put; !errors.Is(err, ErrLost) {
				t.Error(err)
			}
			if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		})
}

func TestALossIsNoticedBeforeTheFileEnds(t *testing.T) {
	inBubble(t, []string{asLocks() + never42 + held42 + passive + "> STOR /f\n< 150 go\nstored abc\n< 426 cut\n" + bye, looked() + held42 + gone42 + bye},
		func(t *testing.T, s *scripted) {
			o := s.options()
			o.Check, o.Keepalive = 10*time.Second, 10*time.Second
			l := mustAcquire(t, o)
			time.Sleep(9 * time.Second) // it is looked at in the 10th second, and would be in the 20th again
			if err := l.Put(t.Context(), "/f", &slow{strings.NewReader("abc"), 10500 * time.Millisecond}, -1); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
			if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		})
}

func TestAFilePutIntoTheLockItselfDoesNotLoseIt(t *testing.T) {
	written := "> MDTM /a\n< 213 20000101000009\n"
	script := strings.ReplaceAll(announce+passive+stored+same+"> RNFR "+part+"\n< 350 to?\n> RNTO /f\n< 250 ok\n", "/f", "/a/f")
	inBubble(t, []string{asOthers() + asked + same + script + written + written + giveBack}, func(t *testing.T, s *scripted) {
		l := mustAcquire(t, s.options())
		if err := l.Put(t.Context(), "/a/f", strings.NewReader("abc"), 3); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsBrokenOffDoesNotEndLikeAFile(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, why := range []error{nil, errSource} {
		e := &endpoint{Server: Server{Timeout: 10 * time.Second, dial: new(net.Dialer).DialContext}}
		d, err := e.passive("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
		s := &session{data: d}
		if why != nil {
			s.interrupt(why)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadAll(c); (err == nil) != (why == nil) {
			t.Errorf("%v: the server sees %v", why, err)
		}
		c.Close()
	}
}

func TestTransferEndsWithTheLocksAgeWhenTheServerIsSilent(t *testing.T) {
	short := "> MKD /a\n< 257 \"/a\" locked, token 42, expires in 8s\n" + passive
	inBubble(t, []string{asLocks() + strings.Replace(short, passive, held42+passive, 1) + "> STOR /f\n< 150 go\nstored abc\n< 426 cut\n" + bye, "hang", "hang"},
		func(t *testing.T, s *scripted) {
			o := s.options()
			o.Check = time.Second
			l := mustAcquire(t, o)
			put := make(chan error, 1)
			go func() { put <- l.Put(t.Context(), "/f", &slow{strings.NewReader("abc"), 20 * time.Second}, -1) }()
			began := time.Now()
			<-l.Done()
			if at := time.Since(began); at != 8*time.Second {
				t.Errorf("noticed after %v", at)
			}
			if err := <-put; !errors.Is(err, ErrLost) {
				t.Error(err)
			}
			if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		})
}
