package locksmith

import (
	"context"
	"errors"
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
			if took := time.Since(began); took > 8*time.Second {
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
		if took := time.Since(began); took > 4*time.Second {
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
