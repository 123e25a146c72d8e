package locksmith

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// Locks share nothing: a wait at the server delays neither a held lock nor another try.
func TestAHeldLockIsCheckedWhileOthersWait(t *testing.T) {
	const waiters = 6
	waits := asLocks() + "> MKD /a\n" + heldByBob + "> SITE WAIT 20\n< 200 ok\n> MKD /a\nhang"
	held := asLocks() + grant("42", grace15) + strings.Repeat(info("/a", "42", "mine=session;"+grace15), 14) + sendRMD
	once := asLocks() + "> MKD /a\n" + heldByBob + bye
	scripts := append([]string{held}, strings.Split(strings.Repeat(waits+"|", waiters)+once, "|")...)
	inBubble(t, scripts, func(t *testing.T, s *scripted) {
		o := s.options()
		o.Config.Check = time.Second
		l := mustAcquire(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), 14*time.Second)
		defer cancel()
		ended := make(chan error, waiters)
		for range waiters {
			go func() {
				_, err := o.acquire(ctx)
				ended <- err
			}()
			time.Sleep(10 * time.Millisecond)
		}
		began := time.Now()
		if _, err := TryAcquire(t.Context(), o.Config, "/a", Options{}); !errors.Is(err, ErrHeld) || time.Since(began) > 0 {
			t.Errorf("TryAcquire: %v after %v", err, time.Since(began))
		}
		for range waiters {
			if err := <-ended; !errors.Is(err, ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		time.Sleep(500 * time.Millisecond)
		if err := l.Err(); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// After Release no goroutine and no connection is left, although a check may be due, or the server refused RMD.
func TestReleaseEndsTheConnection(t *testing.T) {
	refused := "> RMD /a\n< 550 /a: there are locks below it\n" + ask42 + bye
	inBubble(t, []string{asLocks() + grant42 + refused, asLocks() + adopt("/a", "42", "43") + sendRMD}, func(t *testing.T, s *scripted) {
		o := s.options()
		o.Config.Check = time.Second
		l := mustAcquire(t, o)
		if err := l.Release(t.Context()); !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // no check connects again
		if err := l.Put(t.Context(), "/f", strings.NewReader("abc"), 3); !errors.Is(err, ErrReleased) {
			t.Error(err)
		}
		if err := l.checkHeld(t.Context()); !errors.Is(err, ErrReleased) { // of a transfer that has not ended yet
			t.Error(err)
		}
		if cause := context.Cause(l.Context()); !errors.Is(cause, ErrReleased) || errors.Is(cause, ErrLost) {
			t.Error(cause)
		}
		for range 2 {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A function of the caller that blocks does not keep a lost lock alive.
func TestContextEndsWhileTheCallerBlocks(t *testing.T) {
	inBubble(t, []string{asLocks() + grant("42", grace15) + "drop"}, func(t *testing.T, s *scripted) {
		o := s.options()
		o.Config.Check = time.Second
		dial, blocked := o.Config.DialContext, make(chan struct{})
		o.Config.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if len(s.scripts) == 0 {
				<-blocked
			}
			return dial(ctx, network, address)
		}
		l := mustAcquire(t, o)
		stopped := context.AfterFunc(l.Context(), func() { <-blocked })
		defer stopped()
		time.Sleep(14 * time.Second)
		if err := l.Err(); !errors.Is(err, ErrLost) || l.Context().Err() == nil {
			t.Error(err)
		}
		close(blocked)
		if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	})
}

func TestAcquireWaitsForTheServerWithoutADeadline(t *testing.T) {
	inBubble(t, []string{"", "< 421 too many\n", asLocks() + grant42 + sendRMD}, func(t *testing.T, s *scripted) {
		o := s.options()
		var why []error
		o.OnWait = func(err error) { why = append(why, err) }
		if _, err := TryAcquire(t.Context(), o.Config, "/a", o.Options); !errors.Is(err, ErrUnreachable) || len(why) > 0 {
			t.Error(err)
		}
		l := mustAcquire(t, o)
		if len(why) != 1 || !errors.Is(why[0], ErrUnreachable) {
			t.Error(why)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
	inBubble(t, nil, func(t *testing.T, s *scripted) {
		o := s.options()
		o.Config.DialContext = func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		}
		if _, err := o.acquire(t.Context()); !errors.Is(err, ErrUnreachable) {
			t.Error(err)
		}
	})
}

// A client that queues while the server restarts has lost the reply to MKD. That is no news for people.
func TestARestartIsAnOutageForAClientThatQueues(t *testing.T) {
	inBubble(t, []string{asLocks() + strings.TrimSuffix(queueing, "hang") + "drop", "", asLocks() + "> MKD /a\n" + heldByBob + "> SITE WAIT 20\n< 200 ok\n" + grant42 + sendRMD}, func(t *testing.T, s *scripted) {
		o := s.options()
		var why []error
		o.OnWait = func(err error) { why = append(why, err) }
		l := mustAcquire(t, o)
		if len(why) != 4 || !errors.Is(why[0], ErrHeld) || !errors.Is(why[3], ErrHeld) { // the holder may be another one after the restart
			t.Fatal(why)
		}
		for _, err := range why[1:3] {
			if !errors.Is(err, ErrUnknown) || !errors.Is(err, ErrUnreachable) || err.Error() != "10.0.0.1:21: the server hung up" {
				t.Error(err)
			}
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestErrorsMatchTheContextAndItsCause(t *testing.T) {
	cause := errors.New("the operator stopped it")
	inBubble(t, []string{asLocks() + "> MKD /a\nhang", "hang", "hang", asLocks() + grant42 + sendRMD}, func(t *testing.T, s *scripted) {
		ctx, cancel := context.WithCancelCause(t.Context())
		o := s.options()
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := o.acquire(ctx)
		failed := []error{err}
		ctx, cancel = context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err = Stat(ctx, o.Config, "/a")
		failed = append(failed, err)
		_, err = Join(ctx, o.Config, Ticket{Token: 1, Path: "/a"}, Options{})
		l := mustAcquire(t, o)
		failed = append(failed, err, l.Put(ctx, "/f", strings.NewReader(""), 0))
		for range 20 { // the connection stays
			failed = append(failed, l.Renew(ctx))
		}
		for _, err := range failed {
			if !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestStat(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		held   bool
		want   error
	}{
		"held":         {asLocks() + ask42 + bye, true, nil},
		"free":         {asLocks() + gone + bye, false, nil},
		"no lock":      {asLocks() + noLock + bye, false, ErrRefused},
		"not now":      {asLocks() + notNow + bye, false, ErrUnknown},
		"hangs up":     {asLocks() + "> SITE LOCK INFO /a\ndrop", false, ErrUnreachable},
		"other server": {asOthers() + same + bye, true, nil},
	} {
		inBubble(t, []string{c.script}, func(t *testing.T, s *scripted) {
			i, err := Stat(t.Context(), s.options().Config, "/a")
			if i.Held != c.held || !errors.Is(err, c.want) {
				t.Errorf("%s: %+v, %v", name, i, err)
			}
			if err == nil && i.Unsupported.Has(FeatureTokens) != (name == "other server") {
				t.Errorf("%s: unsupported: %v", name, i.Unsupported)
			}
		})
	}
}

// Without a token, one hold cannot be told from the next.
func TestAHoldWithoutATokenIsNoHolder(t *testing.T) {
	for _, facts := range []string{"", "token=;", "token=0;", "token=x;"} {
		i := newStatus("/a", reply{211, "Lock /a\n type=lock;" + facts + "mine=session;mkd=later; /a\nEnd"})
		if _, own := i.ownHold(); own || i.Held || !i.busy {
			t.Errorf("%q: %+v", facts, i)
		}
	}
}

func TestOptions(t *testing.T) {
	if text := (Unsupported{}).Error(); text != "the server supports all features" {
		t.Error(text)
	}
	aged := strings.Replace(asLocks(), "> SITE WAIT 0", "> SITE LOCK AGE 2\n< 200 ok\n> SITE WAIT 0", 1)
	noted := strings.Replace(strings.Replace(asLocks(), "> SITE WAIT 0", "> SITE LOCK NOTE web3 4711 ?x? "+strings.Repeat("é", 33)+"\n< 200 ok\n> SITE WAIT 0", 1),
		"<  SITE LOCKS\n", "<  SITE LOCK NOTE\n<  SITE LOCKS\n", 2)
	short := "left=2.000;age=2.000;"
	for name, c := range map[string]struct {
		script  string
		options Options
		ends    time.Duration // of Context; 0: Acquire fails
		says    string
	}{
		"MaxAge":               {aged + grant("42", short) + asks + "hang", Options{MaxAge: 1500 * time.Millisecond}, 1600 * time.Millisecond, ""},
		"Margin":               {asLocks() + grant("42", short) + asks + "hang", Options{Margin: 900 * time.Millisecond}, 1100 * time.Millisecond, ""},
		"no grace":             {asLocks() + grant("42", "left=360.000;grace=0.000;") + sendRMD, Options{}, 0, "refused: /a: the server would release the lock as soon as the connection ends: its rule needs a grace of a few seconds"},
		"a Margin too long":    {asLocks() + grant("42", short) + sendRMD, Options{Margin: time.Second}, 0, "refused: /a: the lock can end after 2s, which is too short for a margin of 1s"},
		"MaxAge not supported": {asOthers(), Options{MaxAge: time.Second}, 0, "the server does not support max age"},
		"Note":                 {noted + grant("42", short) + asks + "hang", Options{Note: " web3\n4711 \x1bx\xff " + strings.Repeat("é", 40)}, 1600 * time.Millisecond, ""},
		"Note not supported":   {asLocks() + grant("42", short) + asks + "hang", Options{Note: "web3"}, 1600 * time.Millisecond, ""},
	} {
		inBubble(t, []string{c.script}, func(t *testing.T, s *scripted) {
			o := s.options()
			o.Options = c.options
			began := time.Now()
			l, err := o.acquire(t.Context())
			if c.ends == 0 {
				if !errors.Is(err, ErrRefused) || err.Error() != c.says {
					t.Errorf("%s: %v", name, err)
				}
				return
			} else if err != nil {
				t.Fatal(err)
			}
			<-l.Context().Done()
			if at := time.Since(began); at != c.ends {
				t.Errorf("%s: ended after %v, want %v", name, at, c.ends)
			}
			_ = l.Release(t.Context())
		})
	}
}

func TestRenew(t *testing.T) {
	inBubble(t, []string{asLocks() + grant42 + renew + ask42 + sendRMD, asOthers() + asked + same + sendRMD}, func(t *testing.T, s *scripted) {
		for _, want := range []error{nil, ErrRefused} {
			l := mustAcquire(t, s.options())
			if err := l.Renew(t.Context()); !errors.Is(err, want) {
				t.Error(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Put and Get check the lock, too.
func TestALockThatIsCheckedAllTheTimeIsRenewed(t *testing.T) {
	inBubble(t, []string{asLocks() + grant42 + ask42 + ask42 + ask42 + renew + ask42 + sendRMD}, func(t *testing.T, s *scripted) {
		o := s.options()
		o.Renew, o.Config.Check = true, time.Minute
		l := mustAcquire(t, o)
		time.Sleep(170 * time.Second)
		if err := l.checkHeld(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
