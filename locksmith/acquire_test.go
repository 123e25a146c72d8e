package locksmith

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

const (
	bob     = "account=bob;address=10.0.0.5;held=12.000;left=348.000;mine=no;"
	sendRMD = "> RMD /a\n< 250 /a released\n" + bye
	gone    = "> SITE LOCK INFO /a\n< 211-Lock /a\n<  words\n<  type=free;waiting=0;mkd=granted; /a\n< 211 End\n"
	noLock  = "> SITE LOCK INFO /a\n< 550 /a: words\n"
	lost    = gone + "> SITE LOCK RENEW /a\n< 550 /a: taken away 1s ago\n"
)

var (
	grant42   = grant("42", "left=360.000;age=360.000;")
	queueing  = "> MKD /a\n" + heldByBob + "> SITE WAIT 20\n< 200 ok\n> MKD /a\nhang"
	heldByBob = "< 550 words\n" + info("/a", "7", bob)
)

func TestDo(t *testing.T) {
	failed := errors.New("it failed")
	for name, c := range map[string]struct {
		script string
		f      func(context.Context) error
		want   error
		says   string
	}{
		"succeeds":                      {script: grant42 + sendRMD, f: func(context.Context) error { return nil }},
		"returns the error of f":        {script: grant42 + sendRMD, f: func(context.Context) error { return failed }, want: failed, says: failed.Error()},
		"ends with the lock":            {script: grant42 + lost + bye, f: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, want: ErrLost, says: "the lock was lost: /a: taken away 1s ago"},
		"reports a loss that f ignored": {script: grant42 + lost + bye, f: func(ctx context.Context) error { <-ctx.Done(); return nil }, want: ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{asLocks() + c.script}, func(t *testing.T, s *scripted) {
				o := s.options()
				o.Config.Check = time.Second
				err := do(t.Context(), o, c.f)
				if !errors.Is(err, c.want) || c.says != "" && err.Error() != c.says {
					t.Error(err)
				}
			})
		})
	}
	inBubble(t, []string{asLocks() + grant42 + sendRMD}, func(t *testing.T, s *scripted) {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		_ = do(t.Context(), s.options(), func(context.Context) error { panic("f") })
	})
}

func do(ctx context.Context, w wish, f func(context.Context) error) error {
	return Do(ctx, w.Config, w.Path, w.Options, func(ctx context.Context, _ *Lock) error { return f(ctx) })
}

func TestAnAcquireIs(t *testing.T) {
	canceled := errors.New("canceled by the test")
	for name, c := range map[string]struct {
		scripts []string
		once    bool          // TryOnce
		wait    time.Duration // the deadline of ctx
		cancel  time.Duration // after so long
		limit   time.Duration // Options.Wait
		timeout time.Duration
		shared  bool
		want    error // nil: the lock is held, and released
		says    string
		also    error
		took    time.Duration // at most
	}{
		"waited for at the server, in slices": {
			scripts: []string{asLocks() + "> MKD /a\n" + heldByBob +
				"> SITE WAIT 20\n< 200 ok\n> MKD /a\n! 20s\n" + heldByBob +
				"> MKD /a\n! 7s\n< 257 words\n" + info("/a", "43", "mine=session;") + sendRMD},
			took: 27 * time.Second, timeout: 2 * time.Second,
		},
		"ended at the deadline, with the connection": {
			scripts: []string{asLocks() + queueing},
			wait:    5 * time.Second, want: ErrHeld, also: context.DeadlineExceeded, says: "/a: held by bob@10.0.0.5 for 12s, 5s ago", took: 5 * time.Second,
		},
		"ended at the deadline, with the holder of that time": {
			scripts: []string{asLocks() + queueing, asLocks() + info("/a", "8", "account=eve;address=10.0.0.6;held=1.500;mine=no;") + bye},
			wait:    5 * time.Second, want: ErrHeld, also: context.DeadlineExceeded, says: "/a: held by eve@10.0.0.6 for 2s", took: 5 * time.Second,
		},
		"ended at the deadline although the server does not answer any more": {
			scripts: []string{asLocks() + queueing, "hang"},
			wait:    5 * time.Second, want: ErrHeld, says: "/a: held by bob@10.0.0.5 for 12s, 5s ago", took: 6 * time.Second,
		},
		"ended by the option Wait": {
			scripts: []string{asLocks() + queueing, asLocks() + info("/a", "7", bob) + bye},
			limit:   5 * time.Second, want: ErrHeld, also: context.DeadlineExceeded, says: "/a: held by bob@10.0.0.5 for 12s", took: 5 * time.Second,
		},
		"ended by a cancel, with the last known holder": {
			scripts: []string{asLocks() + queueing},
			cancel:  5 * time.Second, want: ErrHeld, also: canceled, says: "/a: held by bob@10.0.0.5 for 12s, 5s ago; the wait ended: canceled by the test", took: 5 * time.Second,
		},
		"ended by a cancel, before the server answers": {
			scripts: []string{"hang"},
			cancel:  time.Second, want: ErrUnreachable, also: canceled, says: "/a: 10.0.0.1:21: canceled by the test", took: time.Second,
		},
		"released if it is granted while ctx ends": {
			scripts: []string{asLocks() + "> MKD /a\n! 250ms\n< 257 words\n" + info("/a", "43", "mine=session;") + sendRMD},
			cancel:  200 * time.Millisecond, want: canceled, says: "/a: canceled by the test", took: 250 * time.Millisecond,
		},
		"released in the background if it is granted later than that": {
			scripts: []string{asOthers() + "> MKD /a\n! 1500ms\n< 257 words\n" + sendRMD},
			cancel:  200 * time.Millisecond, want: ErrUnknown, also: canceled, took: 300 * time.Millisecond,
		},
		"unknown within moments of the end of ctx, when the server does not confirm the grant": {
			scripts: []string{asLocks() + "> MKD /a\n< 257 words\n" + asks + "hang"},
			cancel:  200 * time.Millisecond, want: ErrUnknown, also: canceled, took: 300 * time.Millisecond,
		},
		"given back within moments of the end of ctx, when the server does not answer RMD": {
			scripts: []string{asLocks() + "> MKD /a\n! 250ms\n< 257 words\n" + info("/a", "43", "mine=session;") + "> RMD /a\nhang"},
			cancel:  200 * time.Millisecond, want: canceled, took: 350 * time.Millisecond,
		},
		"adopted after a lost reply": {
			scripts: []string{asLocks() + "> MKD /a\ndrop", asLocks() + grant42 + sendRMD},
		},
		"adopted after a lost reply to the only try": {
			scripts: []string{asLocks() + "> MKD /a\ndrop", asLocks() + grant42 + sendRMD},
			once:    true,
		},
		"held after a lost reply to the only try": {
			scripts: []string{asLocks() + "> MKD /a\ndrop", asLocks() + "> MKD /a\n" + heldByBob + bye},
			once:    true, want: ErrHeld, says: "/a: held by bob@10.0.0.5 for 12s",
		},
		"unknown if the server is away after a lost reply": {
			scripts: []string{asLocks() + "> MKD /a\ndrop"},
			once:    true, want: ErrUnknown, took: 31 * time.Second,
		},
		"unknown if the server is away after a lost reply, and ctx has ended": {
			scripts: []string{asLocks() + "> MKD /a\nhang"},
			cancel:  time.Second, want: ErrUnknown, also: canceled, took: 1100 * time.Millisecond,
		},
		"adopted after the server could not confirm it": {
			scripts: []string{asLocks() + "> MKD /a\n< 451 /a: the server cannot tell whether that happened; check before you try again\n", asLocks() + grant42 + sendRMD},
			once:    true,
		},
		"adopted after a full server ended the connection": {
			scripts: []string{asLocks() + "> MKD /a\n< 421 shutting down\n", "< 421 too many\n", asLocks() + grant42 + sendRMD},
		},
		"refused for good, although it is held": {
			scripts: []string{asLocks() + "> MKD /a\n< 550 /a: this account holds 3 locks\n" + strings.Replace(info("/a", "7", bob), "mkd=later", "mkd=refused", 1) + bye},
			want:    ErrRefused, says: "refused: /a: this account holds 3 locks",
		},
		"held by no client, with a queue": {
			scripts: []string{asLocks() + "> MKD /a\n< 550 /a: cannot be acquired for 5s: it was taken away from its holder\n> SITE LOCK INFO /a\n< 211-Lock /a\n<  TYPE=busy;waiting=3;mkd=later; /a\n< 211 End\n" + bye},
			once:    true, want: ErrHeld, says: "/a: cannot be acquired for 5s: it was taken away from its holder; 3 in the queue",
		},
		"free by the time of the look": {
			scripts: []string{asLocks() + "> MKD /a\n< 550 words\n" + gone + grant42 + sendRMD}, once: true, took: time.Second,
		},
		"refused for good if nothing has the name": {
			scripts: []string{asLocks() + strings.Repeat("> MKD /a\n< 550 /a: no such directory\n"+noLock, 3) + bye},
			want:    ErrRefused, says: "refused: /a: the server replied 550 /a: no such directory, although no client holds it", took: time.Second,
		},
		"refused if the server refuses SITE WAIT": {
			scripts: []string{asLocks() + "> MKD /a\n" + heldByBob + "> SITE WAIT 20\n< 501 too long\n" + bye},
			wait:    time.Minute, want: ErrRefused, says: "refused: 10.0.0.1:21: the server replied 501 too long",
		},
		"refused for a name that is no lock, and the directory is removed": {
			scripts: []string{asLocks() + "> MKD /a\n< 257 created\n" + noLock + sendRMD},
			want:    ErrRefused, says: "refused: no rule of the server makes /a a lock",
		},
		"lost if an administrator breaks the lock before the look": {
			scripts: []string{asLocks() + "> MKD /a\n< 257 locked\n" + gone + "> RMD /a\n< 550 /a: taken away 0s ago\n" + bye},
			want:    ErrLost, says: "the lock was lost: /a: taken away 0s ago",
		},
		"refused if shared on a server without shared locks": {
			scripts: []string{asOthers() + "> MKD /a\n< 257 \"/a\" created\n" + sendRMD},
			shared:  true, want: ErrRefused,
		},
		"held on another server, since its directory was made": {
			scripts: []string{asOthers() + "> MKD /a\n< 550 exists\n> MDTM /a\n< 213 19991231235958\n" + bye},
			once:    true, want: ErrHeld, says: "/a: held by another client for 2s",
		},
		"held on another server that refuses it for now": {
			scripts: []string{asOthers() + "> MKD /a\n< 450 exists\n> MDTM /a\n< 213 19991231235958\n" + bye},
			once:    true, want: ErrHeld, says: "/a: held by another client for 2s",
		},
		"refused for good on another server if no directory has the name": {
			scripts: []string{strings.Replace(asOthers()+strings.Repeat("> MKD /a\n< 550 Permission denied\n> MDTM /a\n< 550 no\n> PASV\n< 500 no\n", 3), "> PASV", "> EPSV\n< 500 no\n> PASV", 1) + bye},
			once:    true, want: ErrRefused, says: "refused: /a: the server replied 550 Permission denied, although no client holds it", took: time.Second,
		},
		"not ours on another server after a lost reply": {
			scripts: []string{asOthers() + "> MKD /a\ndrop", asOthers() + "> MKD /a\n< 550 exists\n> MDTM /a\n< 213 19991231235958\n" + bye},
			once:    true, want: ErrHeld, also: ErrUnknown,
		},
		"granted on another server after a lost reply": {
			scripts: []string{asOthers() + "> MKD /a\ndrop", asOthers() + "> MKD /a\n< 257 created\n> MDTM /a\n< 213 20000101000003\n> MDTM /a\n< 213 20000101000003\n" + sendRMD},
		},
		"an account that is refused at once": {
			scripts: []string{"< 220 ready\n> USER me\n< 530 never\n"},
			want:    ErrLogin, says: "login refused: me at 10.0.0.1:21: the server replied 530 never",
		},
		"a server that does not answer the login": {
			scripts: []string{"< 220 ready\n> USER me\nhang"}, once: true, want: ErrUnreachable, took: 30 * time.Second,
		},
		"a server without FTP": {
			scripts: []string{"< HTTP/1.1 400 Bad Request\n"}, once: true, want: ErrUnreachable,
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
				o.TryOnce, o.Shared, o.Wait = c.once, c.shared, c.limit
				if c.wait > 0 {
					limited, cancel := context.WithTimeout(ctx, c.wait)
					defer cancel()
					ctx = limited
				}
				if c.timeout > 0 {
					o.Config.Timeout = c.timeout
				}
				l, err := o.acquire(ctx)
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

func TestAnMKDThatWasNotSentGrantsNothing(t *testing.T) {
	inBubble(t, []string{asLocks()}, func(t *testing.T, s *scripted) {
		e, err := s.options().Config.resolve()
		if err != nil {
			t.Fatal(err)
		}
		a := &acquisition{endpoint: e, ctx: t.Context(), name: "/a\n"}
		if err := a.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, want := range []error{ErrRefused, ErrUnreachable} {
			if _, err := a.mkdir(t.Context(), a.s, 0); !errors.Is(err, want) || a.maybeGranted {
				t.Errorf("%v, it may be granted: %v", err, a.maybeGranted)
			}
			_ = a.s.lost(io.EOF)
			a.name = "/a"
		}
	})
}

func TestAcquirePollsAtRandomTimes(t *testing.T) {
	busy := "> MKD /a\n< 550 exists\n> MDTM /a\n< 213 19991231235958\n"
	for name, script := range map[string]string{
		"a server that cannot wait": asOthers() + strings.Repeat(busy, 20) + "> MKD /a\n< 257 created\n> MDTM /a\n< 213 20000101000003\n> MDTM /a\n< 213 20000101000003\n" + sendRMD,
		"a server that does not wait": asLocks() + "> MKD /a\n" + heldByBob + "> SITE WAIT 20\n< 200 ok\n" + strings.Repeat("> MKD /a\n"+heldByBob, 20) +
			grant("43", "") + sendRMD,
	} {
		inBubble(t, []string{script}, func(t *testing.T, s *scripted) {
			l := mustAcquire(t, s.options())
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
			tries := s.times("MKD /a")[1:] // the first one does not wait
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

func TestPathIsAbsolute(t *testing.T) {
	for path, script := range map[string]string{
		"/a":       asOthers() + asked + same + sendRMD,
		"a":        asOthers() + strings.ReplaceAll(asked+same+sendRMD, " /a", " a"),
		`/a;b "c"`: asLocks() + strings.ReplaceAll(grant42+sendRMD, "/a", `/a;b "c"`),
	} {
		inBubble(t, []string{script}, func(t *testing.T, s *scripted) {
			o := s.options()
			o.Path = path
			l := mustAcquire(t, o)
			if want := "/" + strings.TrimPrefix(path, "/"); l.Path() != want {
				t.Errorf("%s is named %s", path, l.Path())
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
