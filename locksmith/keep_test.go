package locksmith

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

const (
	notNow = "> SITE LOCK INFO /a\n< 451 /a: not now: etcd does not answer; nothing was changed, try again\n"
	asked  = "> MKD /a\n< 257 created\n> MDTM /a\n< 213 20000101000003\n"
	same   = "> MDTM /a\n< 213 20000101000003\n"
	renew  = "> SITE LOCK RENEW /a\n< 200 words\n"
	asks   = "> SITE LOCK INFO /a\n"
	// parting is what a client sends that does not get an answer any more, or has lost its lease
	parting = "> SITE LOCK AS *\n> RMD /a\n> QUIT\n"
)

var (
	ask42   = info("/a", "42", "mine=session;left=355.000;age=360.000;")
	never42 = grant("42", "")
	idle20  = "left=20.000;age=86400.000;idle=20.000;"
	grace15 = "left=86400.000;age=86400.000;grace=15.000;"
)

func TestALockIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		scripts []string
		want    error
		says    string
		after   time.Duration // the earliest and the latest
		before  time.Duration
	}{
		"when an administrator breaks it": {
			scripts: []string{asLocks() + grant42 + ask42 + ask42 +
				strings.Replace(lost, "1s ago", "1s ago: broken by boss@10.0.0.2, stuck", 1) + bye},
			want: ErrLost, says: "the lock was lost: /a: taken away 1s ago: broken by boss@10.0.0.2, stuck",
			after: 3 * time.Second, before: 3 * time.Second,
		},
		"when another client has it": {
			scripts: []string{asLocks() + grant42 +
				info("/a", "44", bob) + "> SITE LOCK RENEW /a\n< 550 /a: not yours: held by me@10.0.0.9 for 0s\n" + bye},
			want: ErrLost, says: "the lock was lost: /a: not yours: held by me@10.0.0.9 for 0s",
			before: time.Second,
		},
		"when another directory has replaced its own": {
			scripts: []string{asOthers() + asked + "> MDTM /a\n< 213 20000101000007\n" + bye},
			want:    ErrLost, before: 5 * time.Second,
		},
		"when another directory has replaced its own, after a check that failed": {
			scripts: []string{asOthers() + asked + "> MDTM /a\n< 450 busy\n", asOthers() + "> MDTM /a\n< 213 20000101000007\n" + bye},
			want:    ErrLost, before: 10 * time.Second,
		},
		"when the server is away until the end of its age": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\ndrop"},
			want:    ErrLost, says: "the lock was lost: /a: its age of 6m0s is over",
			after: 6*time.Minute - 2*time.Second, before: 6*time.Minute - 2*time.Second,
		},
		"before the end of its age, when the server does not answer and the age is shorter than the time limit of a check": {
			scripts: []string{asLocks() + grant("42", "left=3.000;age=3.000;") + "> SITE LOCK INFO /a\nhang"},
			want:    ErrLost, says: "the lock was lost: /a: its age of 3s is over",
			after: 2400 * time.Millisecond, before: 2400 * time.Millisecond,
		},
		"before the end of its age, when the server does not answer to a new connection either": {
			scripts: []string{asLocks() + grant("42", "left=20.000;age=20.000;") + "> SITE LOCK INFO /a\nhang", "hang"},
			want:    ErrLost, after: 18 * time.Second, before: 18 * time.Second,
		},
		"before its idle time is over, when the server does not answer": {
			scripts: []string{asLocks() + grant("42", idle20) + info("/a", "42", "mine=session;"+idle20) + "> SITE LOCK INFO /a\nhang", "hang"},
			want:    ErrLost, says: "the lock was lost: /a: no answer from the server for 18s: it may have ended the lock",
			after: 19000 * time.Millisecond, before: 19000 * time.Millisecond,
		},
		"before the end of an age that a reload has shortened": {
			scripts: []string{asLocks() + grant42 + info("/a", "42", "mine=session;left=10.000;age=11.000;") + "> SITE LOCK INFO /a\nhang", "hang"},
			want:    ErrLost, says: "the lock was lost: /a: its age of 11s is over",
			after: 9 * time.Second, before: 9 * time.Second,
		},
		"before its grace is over, when the server does not answer": {
			scripts: []string{graced() + grant("42", grace15) + info("/a", "42", "mine=session;"+grace15) + "> SITE LOCK INFO /a\nhang", "hang"},
			want:    ErrLost, after: 14 * time.Second, before: 14 * time.Second,
		},
		"when its grant was not confirmed, and another client has it": {
			scripts: []string{asLocks() + "> MKD /a\n< 257 words\n> SITE LOCK INFO /a\ndrop",
				asLocks() + grant42 + lost + bye},
			want: ErrLost, before: time.Second,
		},
		"within seconds, when the network is back and another client has it": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\nhang",
				asLocks() + info("/a", "43", bob) + bye},
			want: ErrLost, after: 5 * time.Second, before: 7 * time.Second,
		},
		"or unknown, when the server is away for a minute and the lock has no limit": {
			scripts: []string{asLocks() + never42 + "> SITE LOCK INFO /a\ndrop"},
			want:    ErrUnknown, after: time.Minute, before: time.Minute + 2*time.Second,
		},
		"when it ends between the facts and the MKD after a disconnect, so that the MKD is a new grant": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\ndrop",
				asLocks() + info("/a", "42", "mine=job;") + grant("50", "") + "> RMD /a\n< 250 ok\n" + bye},
			want: ErrLost, says: "the lock was lost: /a: it ended while the connection was lost", before: time.Second,
		},
		"when its directory is gone after a disconnect": {
			scripts: []string{asOthers() + asked + "> MDTM /a\ndrop", asOthers() + "> MDTM /a\n< 550 no\n" + bye},
			want:    ErrLost, before: 6 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				o := s.options()
				o.Config.Check = 0
				l := mustAcquire(t, o)
				began := time.Now()
				<-l.Context().Done()
				if at := time.Since(began); at < c.after || at > c.before {
					t.Errorf("after %v", at)
				}
				err := l.Err()
				oneLine(t, err)
				if !errors.Is(err, c.want) || c.says != "" && err.Error() != c.says {
					t.Error(err)
				}
				if err := l.Release(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("released with %v", err)
				}
			})
		})
	}
}

func TestALockIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		scripts []string
		change  func(*wish)
		after   time.Duration
		token   uint64
	}{
		"after a disconnect and a lost reply to the adoption": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\ndrop", asLocks() + info("/a", "42", "mine=job;") + "> MKD /a\ndrop",
				asLocks() + strings.Replace(adopt("/a", "50", "51"), "mine=job;", "mine=job;adopted=42;", 1) + sendRMD},
			change: func(o *wish) { o.Config.Check = time.Second }, after: 1900 * time.Millisecond, token: 51,
		},
		"after a disconnect and a transient refusal of the adoption": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\ndrop", asLocks() + info("/a", "42", "mine=job;") + "> MKD /a\n< 451 /a: not now\nhang",
				asLocks() + adopt("/a", "42", "43") + sendRMD},
			change: func(o *wish) { o.Config.Check = time.Second }, after: 1900 * time.Millisecond, token: 43,
		},
		"when a new connection reaches a server without facts first": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\ndrop", asOthers() + "hang", asLocks() + adopt("/a", "42", "43") + sendRMD},
			change:  func(o *wish) { o.Config.Check = time.Second }, after: 1900 * time.Millisecond, token: 43,
		},
		"while the server cannot confirm it for some seconds": {
			scripts: []string{asLocks() + grant42 + ask42 + notNow + notNow + ask42 + notNow + ask42 + sendRMD},
			change:  func(o *wish) { o.Config.Check = time.Second }, after: 6*time.Second + 500*time.Millisecond, token: 42,
		},
		"on a new connection when the server could not confirm it for five seconds": {
			scripts: []string{asLocks() + grant42 + strings.Repeat(notNow, 5),
				asLocks() + adopt("/a", "42", "43") + sendRMD},
			change: func(o *wish) { o.Config.Check = time.Second }, after: 5*time.Second + 500*time.Millisecond, token: 43,
		},
		"while the server cannot renew it": {
			scripts: []string{asLocks() + grant42 + ask42 + ask42 + "> SITE LOCK RENEW /a\n< 451 /a: not now: etcd does not answer; nothing was changed, try again\n",
				asLocks() + adopt("/a", "42", "43") + sendRMD},
			change: func(o *wish) { o.Config.Check, o.Renew = time.Minute, true }, after: 3*time.Minute + 10*time.Second, token: 43,
		},
		"after a disconnect, by its directory": {
			scripts: []string{asOthers() + asked + "> MDTM /a\ndrop", asOthers() + same + same + sendRMD}, after: 9 * time.Second,
		},
		"on a server that does not show directories": {
			scripts: []string{asOthers() + "> MKD /a\n< 257 \"/a\" created\n> MDTM /a\n< 550 no\n> EPSV\n< 500 no\n> PASV\n< 500 no\n" +
				"> MDTM /a\n< 550 no\n> PASV\n< 500 no\n" +
				"> MDTM /a\n< 550 no\n> PASV\n< 500 no\n" + sendRMD}, after: 6 * time.Second,
		},
		"by a renewal when half of its age is over": {
			scripts: []string{asLocks() + grant42 + ask42 + ask42 + renew + ask42 + ask42 + ask42 + sendRMD},
			change:  func(o *wish) { o.Config.Check, o.Renew = time.Minute, true }, after: 5*time.Minute + time.Second, token: 42,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				o := s.options()
				o.Config.Check = 0
				if c.change != nil {
					c.change(&o)
				}
				l := mustAcquire(t, o)
				time.Sleep(c.after)
				if l.Err() != nil || l.Token() != c.token {
					t.Errorf("token %d, %v", l.Token(), l.Err())
				}
				if left := time.Until(l.Expires()); c.token != 0 && (left <= 0 || left > 6*time.Minute) {
					t.Errorf("expires in %v", left)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestRelease(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		scripts []string
		ctx     context.Context
		limit   time.Duration
		asked   bool // a check is in progress
		want    error
		says    string
		took    time.Duration
	}{
		"is done when the reply is lost and the lock is gone": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\ndrop", asLocks() + gone + bye},
		},
		"is sent again when the reply is lost and the lock is held": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\ndrop", asLocks() + adopt("/a", "42", "43") + sendRMD},
		},
		"reports that the lock was lost": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\n< 550 /a: taken away 2s ago: older than 6m0s\n" + gone + bye},
			want:    ErrLost, says: "the lock was lost: /a: taken away 2s ago: older than 6m0s",
		},
		"reports that the lock is still held": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\n< 550 /a: there are locks below it\n" + ask42 + bye},
			want:    ErrRefused, says: "refused: /a: there are locks below it",
		},
		"does not remove another directory": {
			scripts: []string{asOthers() + asked + "> MDTM /a\n< 213 20000101000009\n" + bye}, want: ErrLost,
		},
		"reports that the lock may be held when the server refuses": {
			scripts: []string{asOthers() + asked + same + "> RMD /a\n< 550 not empty\n" + bye}, want: ErrUnknown,
		},
		"reports that the lock may be held when the server does not answer": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\nhang"}, want: ErrUnknown, took: 31 * time.Second,
		},
		"is not sent before the server shows the directory again": {
			scripts: []string{asOthers() + asked + "> MDTM /a\n< 450 busy\n" + same + sendRMD},
		},
		"is tried though ctx has ended": {
			scripts: []string{asLocks() + grant42 + sendRMD}, ctx: canceled,
		},
		"ends within moments of the end of ctx, and the connection ends the lock later": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\n" + parting}, ctx: canceled, want: ErrUnknown, took: 100 * time.Millisecond,
			says: "the lock's state is not known: /a: the server does not answer",
		},
		"ends within moments of the end of ctx, although the server does not answer QUIT": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\n< 250 ok\n> QUIT\nhang"}, ctx: canceled, took: 100 * time.Millisecond,
		},
		"ends within moments of the end of ctx, although a check is under way": {
			scripts: []string{asLocks() + grant42 + asks + parting}, ctx: canceled, asked: true, want: ErrUnknown, took: 1600 * time.Millisecond,
		},
		"ends within moments of the end of ctx, and reports why the server cannot be reached": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\ndrop"}, limit: 200 * time.Millisecond, want: ErrUnknown, took: 300 * time.Millisecond,
			says: "the lock's state is not known: /a: 10.0.0.1:21: connection refused",
		},
		"is sent again after a transient failure": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\n< 451 /a: no space left\n" + sendRMD},
		},
		"reports that the lock may be held when each try fails": {
			scripts: []string{asLocks() + grant42 + strings.Repeat("> RMD /a\n< 451 /a: no space left\n", 4) + bye},
			want:    ErrUnknown,
		},
		"waits for a check that the server does not answer, and may fail": {
			scripts: []string{asLocks() + grant42 + asks + "hang", "hang"}, asked: true,
			want: ErrUnknown, says: "the lock's state is not known: /a: the server does not answer",
		},
		"waits for such a check, and succeeds on a new connection": {
			scripts: []string{asLocks() + grant42 + asks + "hang", asLocks() + adopt("/a", "42", "43") + sendRMD},
			asked:   true,
		},
		"is not sent after such a check where it could end another lock": {
			scripts: []string{asOthers() + asked + "> MDTM /a\nhang", asOthers() + same + same + sendRMD}, asked: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				o := s.options()
				if c.asked {
					o.Config.Check = time.Second
				}
				l := mustAcquire(t, o)
				began := time.Now()
				ctx := c.ctx
				if ctx == nil {
					ctx = t.Context()
				}
				if c.limit > 0 {
					limited, cancel := context.WithTimeout(ctx, c.limit)
					defer cancel()
					ctx = limited
				}
				if c.asked {
					time.Sleep(1500 * time.Millisecond)
					limited, cancel := context.WithTimeout(ctx, 10*time.Second)
					defer cancel()
					ctx = limited
				}
				err := l.Release(ctx)
				oneLine(t, err)
				if c.want != nil && !errors.Is(err, c.want) || c.says != "" && (err == nil || err.Error() != c.says) || c.want == nil && c.says == "" && err != nil {
					t.Error(err)
				}
				if took := time.Since(began); c.took > 0 && took > c.took {
					t.Errorf("it took %v", took)
				}
				<-l.Context().Done()
			})
		})
	}
}

// A lock whose lease has ended may still be held on the server: after the margin, or when the caller has stopped, its connection ends it. It must not end
// the hold of another connection with the same job key.
func TestALostLeaseEndsTheLockOnTheServer(t *testing.T) {
	for name, released := range map[string]bool{"when the margin is over": false, "with Release": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, []string{graced() + grant("42", grace15) + asks + parting}, func(t *testing.T, s *scripted) {
				o := s.options()
				o.Config.Check = time.Second
				l := mustAcquire(t, o)
				began := time.Now()
				<-l.Context().Done()
				want := 15 * time.Second
				if released {
					want = 13 * time.Second
					if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
						t.Error(err)
					}
				}
				s.tasks.Wait()
				if at := s.times("RMD /a"); len(at) != 1 || at[0].Sub(began) != want {
					t.Errorf("RMD was sent at %v, want %v", at, began.Add(want))
				}
				if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
					t.Error(err)
				}
			})
		})
	}
}

func TestALossWhileTheProcessStandsStillNamesThat(t *testing.T) {
	for says, facts := range map[string]lease{
		"the lock was lost: /a: this process did not run for 18s: the server may have ended the lock": {grace: 15 * time.Second, age: time.Hour, left: time.Hour},
		"the lock's state is not known: /a: this process did not run for 1m10s":                       {},
		"the lock was lost: /a: its age of 10s is over":                                               {left: 10 * time.Second, age: 10 * time.Second},
	} {
		stopped := 18 * time.Second
		if facts.end().IsZero() {
			stopped = 70 * time.Second
		}
		l := &Lock{path: "/a", life: t.Context(), lease: facts, watched: now().Add(-stopped)}
		l.lease.asOf = l.watched.Add(-time.Second)
		if err := l.extendTimer(); err == nil || err.Error() != says {
			t.Errorf("got %v, want %s", err, says)
		}
	}
}

func TestServersWithoutFacts(t *testing.T) {
	inBubble(t, []string{asOthers() + asked + same + sendRMD}, func(t *testing.T, s *scripted) {
		l := mustAcquire(t, s.options())
		if l.Token() != 0 || l.JobKey() != "" || !l.Expires().IsZero() {
			t.Errorf("token %d, job key %q, expires %v", l.Token(), l.JobKey(), l.Expires())
		}
		if _, err := Acquire(t.Context(), s.options().Config, "", Options{}); !errors.Is(err, ErrRefused) {
			t.Errorf("a lock without a name: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
