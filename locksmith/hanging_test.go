package locksmith

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A check by the listing of vsftpd needs a data connection, which may hang.
func TestReleaseDoesNotWaitForAHangingListing(t *testing.T) {
	list := "> MDTM /a\n< 550 no\n" + passive + "> LIST /\n< 150 go\n"
	entry := "data drwxr-xr-x 2 1 1 4096 Jan  1  2000 a\r\n"
	inBubble(t, []string{asOthers() + "> MKD /a\n< 257 created\n" + list + entry + "< 226 done\n" + passive + "> LIST /\n< 150 go\nhang"},
		func(t *testing.T, s *scripted) {
			o := s.options()
			o.Config.Check = time.Second
			l := mustAcquire(t, o)
			time.Sleep(1500 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if err := l.Release(ctx); !errors.Is(err, ErrUnknown) {
				t.Error(err)
			}
			if took := time.Since(began); took > 1100*time.Millisecond {
				t.Errorf("Release took %v", took)
			}
			s.closeData()
		})
}

// The data connection does not open.
func TestPutEndsWithItsContext(t *testing.T) {
	scripts := []string{
		asOthers() + asked + same + same + sendRMD,
		asOthers() + announce + "> EPSV\n< 229 here (|||3000|)\n> DELE " + part + "\nhang",
	}
	inBubble(t, scripts, func(t *testing.T, s *scripted) {
		o := s.options()
		dial := o.Config.DialContext
		o.Config.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasSuffix(address, ":3000") {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return dial(ctx, network, address)
		}
		l := mustAcquire(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := l.Put(ctx, "/f", strings.NewReader("abc"), 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("Put took %v", took)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestPutLimitsTheRemovalOfItsTemporaryFile(t *testing.T) {
	broken := announce + passive + "> STOR " + part + "\n< 150 go\nstored ab\n< 426 cut\n"
	inBubble(t, []string{asOthers() + asked + same + same + sendRMD, asOthers() + broken + "> DELE " + part + "\nhang"}, func(t *testing.T, s *scripted) {
		l := mustAcquire(t, s.options())
		began := time.Now()
		if err := l.Put(t.Context(), "/f", strings.NewReader("ab"), 3); !errors.Is(err, ErrLocal) {
			t.Error(err)
		}
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("Put took %v", took)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Each call returns within moments of the end of its context, although the server does not answer.
func TestCallsEndWithTheirContext(t *testing.T) {
	held := asLocks() + never42 + held42
	stor := passive + "> STOR /f\n< 150 go\nstored abc\n"
	retr := "> SIZE /f\n< 213 3\n" + passive + "> RETR /f\n< 150 go\ndata abc\n"
	put := func(ctx context.Context, l *Lock) error { return l.Put(ctx, "/f", strings.NewReader("abc"), 3) }
	get := func(ctx context.Context, l *Lock) error {
		_, err := l.Get(ctx, "/f", io.Discard)
		return err
	}
	for name, c := range map[string]struct {
		scripts []string
		call    func(context.Context, *Lock) error
	}{
		"Put, which checks the lock":            {[]string{asLocks() + never42 + held42 + sendRMD}, put},
		"Put, which checks the lock at its end": {[]string{held + held42 + sendRMD, asLocks() + announce + stor + "hang"}, put},
		"Put, which waits for its reply":        {[]string{held + held42 + sendRMD, asLocks() + announce + stor + "hang"}, put},
		"Put, which logs in":                    {[]string{held + sendRMD, "hang"}, put},
		"Get, which waits for its reply":        {[]string{held + sendRMD, asLocks() + retr + "hang"}, get},
		"Renew":                                 {[]string{asLocks() + grant42 + "> SITE LOCK RENEW /a\nhang", asLocks() + adopt("/a", "42", "43") + sendRMD}, func(ctx context.Context, l *Lock) error { return l.Renew(ctx) }},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(name, "checks the lock") { // the server answers late
				c.scripts[0] = strings.TrimSuffix(c.scripts[0], held42+sendRMD) + strings.Replace(held42, "\n", "\n! 3s\n", 1) + sendRMD
			}
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				l := mustAcquire(t, s.options())
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				if err := c.call(ctx, l); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if took := time.Since(began); took > 1100*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
	inBubble(t, []string{asLocks() + grant42 + "> RMD /a\n" + parting}, func(t *testing.T, s *scripted) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		err := do(ctx, s.options(), func(context.Context) error {
			cancel()
			return nil
		})
		if took := time.Since(began); !errors.Is(err, ErrUnknown) || took > 100*time.Millisecond {
			t.Errorf("Do took %v: %v", took, err)
		}
	})
}
