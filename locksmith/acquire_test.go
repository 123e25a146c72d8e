package locksmith

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

const (
	grant42   = "> MKD /a\n< 257 \"/a\" locked, token 42, expires in 6m0s\n" + heard
	heard     = "> NOOP\n< 200 ok\n"
	heldByBob = "< 550 /a: held by bob@10.0.0.5 for 12s, expires in 5m48s\n"
	giveBack  = "> RMD /a\n< 250 /a released\n" + bye
)

func TestDo(t *testing.T) {
	failed := errors.New("it failed")
	lost := "> SITE LOCK INFO /a\n< 550 /a: not held\n> SITE LOCK RENEW /a\n< 550 /a: taken away 1s ago\n" + bye
	for name, c := range map[string]struct {
		script string
		f      func(context.Context) error
		want   error
		says   string
	}{
		"does it":                            {script: grant42 + giveBack, f: func(context.Context) error { return nil }},
		"passes errors on":                   {script: grant42 + giveBack, f: func(context.Context) error { return failed }, want: failed, says: failed.Error()},
		"ends with the lock":                 {script: grant42 + lost, f: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, want: ErrLost, says: "the lock was lost: /a: taken away 1s ago"},
		"tells of a loss that f did not see": {script: grant42 + lost, f: func(ctx context.Context) error { <-ctx.Done(); return nil }, want: ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{asLocks() + c.script}, func(t *testing.T, s *scripted) {
				o := s.options()
				o.Server.Check = time.Second
				err := do(t.Context(), o, c.f)
				if !errors.Is(err, c.want) || c.says != "" && err.Error() != c.says {
					t.Error(err)
				}
			})
		})
	}
	inBubble(t, []string{asLocks() + grant42 + giveBack}, func(t *testing.T, s *scripted) {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		_ = do(t.Context(), s.options(), func(context.Context) error { panic("f") })
	})
}

// do is Client.Do on a connection of its own.
func do(ctx context.Context, w wish, f func(context.Context) error) error {
	c, err := Dial(ctx, w.Server)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Do(ctx, w.Path, func(ctx context.Context, _ *Lock) error { return f(ctx) })
}

func TestAnAcquireIs(t *testing.T) {
	canceled := errors.New("canceled by the test")
	for name, c := range map[string]struct {
		scripts []string
		once    bool          // TryOnce
		wait    time.Duration // the deadline of ctx
		cancel  time.Duration // after so long
		timeout time.Duration
		shared  bool
		want    error // nil: the lock is held, and released
		says    string
		also    error
		took    time.Duration // at most
	}{
		"waited for at the server, in slices": {
			scripts: []string{asLocks() + "> MKD /a\n" + heldByBob +
				"> SITE WAIT 20\n< 200 ok\n> MKD /a\n! 20s\n< 550 /a: waited 20s: held by bob@10.0.0.5 for 32s, never expires; place 1 of 2 in the queue\n" +
				"> MKD /a\n! 7s\n< 257 \"/a\" locked, token 43, never expires\n> SITE WAIT 0\n< 200 ok\n" + giveBack},
			took: 27 * time.Second, timeout: 2 * time.Second,
		},
		"given up at the deadline, with the waiting withdrawn": {
			scripts: []string{asLocks() + "> MKD /a\n" + heldByBob +
				"> SITE WAIT 20\n< 200 ok\n> MKD /a\n> NOOP\n< 550 /a: not waited for any longer\n< 200 OK\n" + bye},
			wait: 5 * time.Second, want: ErrHeld, says: "/a: held by bob@10.0.0.5 for 12s; waited 5s", took: 5 * time.Second,
		},
		"given back when it is granted as ctx ends": {
			scripts: []string{asLocks() + "> MKD /a\n" + heldByBob +
				"> SITE WAIT 20\n< 200 ok\n> MKD /a\n> NOOP\n< 257 \"/a\" locked, token 43, never expires\n< 200 OK\n" + giveBack},
			cancel: 3 * time.Second, want: canceled, says: canceled.Error(), took: 3 * time.Second,
		},
		"found again after a lost reply": {
			scripts: []string{asLocks() + "> MKD /a\ndrop", asLocks() + grant42 + giveBack},
		},
		"found again after a lost reply to the only try": {
			scripts: []string{asLocks() + "> MKD /a\ndrop", asLocks() + grant42 + giveBack},
			once:    true,
		},
		"given back after a lost reply, when ctx has ended": {
			scripts: []string{asLocks() + "> MKD /a\nhang", asLocks() + strings.TrimSuffix(grant42, heard) + giveBack},
			cancel:  time.Second, want: canceled, says: canceled.Error(), took: 10 * time.Second,
		},
		"not known when the server is gone after a lost reply": {
			scripts: []string{asLocks() + "> MKD /a\ndrop"},
			once:    true, want: ErrUnknown, took: 31 * time.Second,
		},
		"not known when the server is gone after a lost reply, and ctx has ended": {
			scripts: []string{asLocks() + "> MKD /a\nhang"},
			cancel:  time.Second, want: ErrUnknown, also: canceled, took: 40 * time.Second,
		},
		"found again after the server could not tell": {
			scripts: []string{asLocks() + "> MKD /a\n< 451 /a: the server cannot tell whether that happened; look before you try again\n", asLocks() + grant42 + giveBack},
		},
		"found again where a full server lost the connection": {
			scripts: []string{asLocks() + "> MKD /a\n< 421 shutting down\n", "< 421 too many\n", asLocks() + grant42 + giveBack},
		},
		"refused to be shared where nothing is known of that": {
			scripts: []string{asOthers() + "> MKD /a\n< 257 \"/a\" created\n" + giveBack},
			shared:  true, want: ErrRefused,
		},
		"held by somebody there, since its directory was made": {
			scripts: []string{asOthers() + "> MKD /a\n< 550 exists\n> MDTM /a\n< 213 19991231235958\n" + bye},
			once:    true, want: ErrHeld, says: "/a: held by another client for 2s",
		},
		"refused for good where nothing is in the way": {
			scripts: []string{strings.Replace(asOthers()+strings.Repeat("> MKD /a\n< 550 Permission denied\n> MDTM /a\n< 550 no\n> PASV\n< 500 no\n", 3), "> PASV", "> EPSV\n< 500 no\n> PASV", 1) + bye},
			once:    true, want: ErrRefused, says: "refused: /a: the server said 550 Permission denied, though nothing is there", took: time.Second,
		},
		"not taken to be ours there after a lost reply": {
			scripts: []string{asOthers() + "> MKD /a\ndrop", asOthers() + "> MKD /a\n< 550 exists\n> MDTM /a\n< 213 19991231235958\n" + bye},
			once:    true, want: ErrHeld, also: ErrUnknown,
		},
		"left nothing of where it was refused after a lost reply": {
			scripts: []string{asOthers() + "> MKD /a\ndrop", asOthers() + "> MKD /a\n< 257 created\n> MDTM /a\n< 213 20000101000003\n> MDTM /a\n< 213 20000101000003\n" + giveBack},
		},
		"an account that is refused at once": {
			scripts: []string{"< 220 ready\n> USER me\n< 530 never\n"},
			want:    ErrLogin, says: "login refused: me at 10.0.0.1:21: the server said 530 never",
		},
		"a server that falls silent at login": {
			scripts: []string{"< 220 ready\n> USER me\nhang"}, want: ErrUnreachable, took: 30 * time.Second,
		},
		"a server that is none of FTP": {
			scripts: []string{"< HTTP/1.1 400 Bad Request\n"}, want: ErrUnreachable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				began := time.Now()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.cancel > 0 {
					defer time.AfterFunc(c.cancel, func() { cancel(canceled) }).Stop()
				}
				o := s.options()
				o.TryOnce, o.Shared = c.once, c.shared
				if c.wait > 0 {
					limited, cancel := context.WithTimeout(ctx, c.wait)
					defer cancel()
					ctx = limited
				}
				if c.timeout > 0 {
					o.Server.Timeout = c.timeout
				}
				l, err := acquire(ctx, o)
				if took := time.Since(began); c.took > 0 && took > c.took {
					t.Errorf("it took %v", took)
				}
				if err == nil {
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
				oneLine(t, err)
				if !errors.Is(err, c.want) || c.also != nil && !errors.Is(err, c.also) || c.says != "" && err.Error() != c.says {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestAcquirePollsAtRandomTimesAroundTheMean(t *testing.T) {
	busy := "> MKD /a\n< 550 exists\n> MDTM /a\n< 213 19991231235958\n"
	for name, script := range map[string]string{
		"a server that cannot wait": asOthers() + strings.Repeat(busy, 20) + "> MKD /a\n< 257 created\n> MDTM /a\n< 213 20000101000003\n> MDTM /a\n< 213 20000101000003\n" + giveBack,
		"a server that does not wait": asLocks() + "> MKD /a\n" + heldByBob + "> SITE WAIT 20\n< 200 ok\n" + strings.Repeat("> MKD /a\n"+heldByBob, 20) +
			"> MKD /a\n< 257 \"/a\" locked, token 43, never expires\n> SITE WAIT 0\n< 200 ok\n" + giveBack,
	} {
		inBubble(t, []string{script}, func(t *testing.T, s *scripted) {
			l := mustAcquire(t, s.options())
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
			tries := s.times("MKD /a")[1:] // the first asks for no time
			seen := make(map[time.Duration]bool)
			for i, at := range tries[1:] {
				gap := at.Sub(tries[i])
				seen[gap] = true
				if gap < 1500*time.Millisecond || gap > 4500*time.Millisecond {
					t.Errorf("%s: %v between two tries", name, gap)
				}
			}
			if len(seen) < 10 {
				t.Errorf("%s: only %d different pauses", name, len(seen))
			}
		})
	}
}

func TestLockHasTheNameThatTheServerQuotesIfItIsTheOneThatWasAsked(t *testing.T) {
	for _, c := range []struct{ path, says, want string }{
		{"/a", `257 "/a" created`, "/a"},
		{"a", `257 "/home/a" created`, "/home/a"},
		{`/a"b`, `257 "/a""b" created`, `/a"b`},
		{`/a"b`, `257 "/a"b" : The directory was successfully created`, `/a"b`},
		{`a"b`, `257 "a"b" : The directory was successfully created`, `/a"b`},
		{"/a", "257 created", "/a"},
	} {
		inBubble(t, []string{asOthers() + "> MKD " + c.path + "\n< " + c.says + "\n> MDTM " + c.path + "\n< 213 20000101000003\n> MDTM " + c.path +
			"\n< 213 20000101000003\n> RMD " + c.path + "\n< 250 ok\n" + bye}, func(t *testing.T, s *scripted) {
			o := s.options()
			o.Path = c.path
			l := mustAcquire(t, o)
			if l.Path() != c.want {
				t.Errorf("%s: %s is named %s", c.path, c.says, l.Path())
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// ftplockd shortens a long 257. What was cut off is asked for.
func TestAGrantThatWasShortenedIsReadWhole(t *testing.T) {
	const whole = "> SITE LOCK RENEW /a\n< 200 \"/a\" locked, token 42, expires in 6m0s\n"
	for _, cut := range []string{` locked, token 42, expires in...`, ` locked, token 42...`, ` locked...`, ``} {
		inBubble(t, []string{asLocks() + "> MKD /a\n< 257 \"/a\"" + cut + "\n" + whole + heard + giveBack}, func(t *testing.T, s *scripted) {
			l := mustAcquire(t, s.options())
			if left := time.Until(l.Expires()); l.Token() != 42 || left != 6*time.Minute-rounding {
				t.Errorf("%q: token %d, expires in %v", cut, l.Token(), left)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	inBubble(t, []string{asLocks() + "> MKD /a\n< 257 \"/a\"\n> SITE LOCK RENEW /a\n< 550 /a: no rule makes that name a lock\n> RMD /a\n< 250 removed\n" + bye}, func(t *testing.T, s *scripted) {
		if _, err := acquire(t.Context(), s.options()); !errors.Is(err, ErrRefused) {
			t.Errorf("a directory that is no lock: %v", err)
		}
	})
}
