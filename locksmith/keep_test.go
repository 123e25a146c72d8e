package locksmith

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

const (
	ask42   = "> SITE LOCK INFO /a\n< 211-Lock /a\n<  held by me@10.0.0.9 for 5s, expires in 5m55s, token 42\n<  2 in the queue\n< 211 End\n"
	notNow  = "> SITE LOCK INFO /a\n< 451 /a: not now: etcd does not answer; nothing was changed, try again\n"
	asked   = "> MKD /a\n< 257 \"/a\" created\n> MDTM /a\n< 213 20000101000003\n"
	same    = "> MDTM /a\n< 213 20000101000003\n"
	never42 = "> MKD /a\n< 257 \"/a\" locked, token 42, never expires\n" + heard
)

func TestALockIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		scripts []string
		want    error
		says    string
		after   time.Duration // the earliest and the latest
		before  time.Duration
	}{
		"when the server has taken it away": {
			scripts: []string{asLocks() + grant42 + ask42 + ask42 +
				"> SITE LOCK INFO /a\n< 550 /a: not held\n> SITE LOCK RENEW /a\n< 550 /a: taken away 1s ago: broken by boss@10.0.0.2, stuck\n" + bye},
			want: ErrLost, says: "the lock was lost: /a: taken away 1s ago: broken by boss@10.0.0.2, stuck",
			after: 3 * time.Second, before: 3 * time.Second,
		},
		"when somebody else has it": {
			scripts: []string{asLocks() + grant42 +
				"> SITE LOCK INFO /a\n< 211-Lock /a\n<  held by me@10.0.0.9 for 0s, never expires, token 44\n< 211 End\n> SITE LOCK RENEW /a\n< 550 /a: not yours: held by me@10.0.0.9 for 0s\n" + bye},
			want: ErrLost, says: "the lock was lost: /a: not yours: held by me@10.0.0.9 for 0s",
			before: time.Second,
		},
		"when its directory is another one": {
			scripts: []string{asOthers() + asked + "> MDTM /a\n< 213 20000101000007\n" + bye},
			want:    ErrLost, before: 5 * time.Second,
		},
		"when the server is gone for as long as the lock lives": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\ndrop"},
			want:    ErrLost, says: "the lock was lost: /a: its age of 6m0s is over",
			after: 6*time.Minute - 2500*time.Millisecond, before: 6*time.Minute - 2500*time.Millisecond,
		},
		"before the end of its age, when the server does not answer and the age is shorter than the patience with it": {
			scripts: []string{asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 42, expires in 3s\n> NOOP\n< 200 ok\n> SITE LOCK INFO /a\nhang"},
			want:    ErrLost, says: "the lock was lost: /a: its age of 3s is over",
			after: 1900 * time.Millisecond, before: 1900 * time.Millisecond,
		},
		"before the end of its age, when the server does not answer to a new connection either": {
			scripts: []string{asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 42, expires in 20s\n> NOOP\n< 200 ok\n> SITE LOCK INFO /a\nhang", "hang"},
			want:    ErrLost, after: 17500 * time.Millisecond, before: 17500 * time.Millisecond,
		},
		"before its idle time is over, when the server does not answer": {
			scripts: []string{asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 42, expires in 24h0m0s or 20s after its last sign of life\n> NOOP\n< 200 ok\n" + ask42 + "> SITE LOCK INFO /a\nhang", "hang"},
			want:    ErrLost, says: "the lock was lost: /a: the server could not be reached for 18s, and may have ended it",
			after: 18500 * time.Millisecond, before: 18500 * time.Millisecond,
		},
		"before the end of an age that a reload has shortened": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\n< 211-Lock /a\n<  held by me@10.0.0.9 for 1s, expires in 10s, token 42\n< 211 End\n> SITE LOCK INFO /a\nhang", "hang"},
			want:    ErrLost, says: "the lock was lost: /a: its age is over, which the server has shortened",
			after: 8500 * time.Millisecond, before: 8500 * time.Millisecond,
		},
		"before its grace is over, when the server does not answer": {
			scripts: []string{graced() + "> MKD /a\n< 257 \"/a\" locked, token 42, expires in 24h0m0s\n> NOOP\n< 200 ok\n" + ask42 + "> SITE LOCK INFO /a\nhang", "hang"},
			want:    ErrLost, after: 14 * time.Second, before: 14 * time.Second,
		},
		"when its grant was not confirmed, and another client has it": {
			scripts: []string{asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 42, expires in 6m0s\n> NOOP\ndrop",
				asLocks() + grant42 + "> SITE LOCK INFO /a\n< 550 /a: not held\n> SITE LOCK RENEW /a\n< 550 /a: not held\n" + bye},
			want: ErrLost, before: time.Second,
		},
		"within seconds, when a network that swallowed everything is back and somebody else has it": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\nhang",
				asLocks() + "> MKD /a\n< 550 /a: held by bob@10.0.0.5 for 1s, never expires\n" + bye},
			want: ErrLost, after: 5 * time.Second, before: 7 * time.Second,
		},
		"or not known, when the server is gone for a minute and the lock never ends by itself": {
			scripts: []string{asLocks() + never42 + "> SITE LOCK INFO /a\ndrop"},
			want:    ErrUnknown, after: time.Minute, before: time.Minute + 2*time.Second,
		},
		"when it has ended, and the MKD after a disconnect is granted as if to anybody": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\ndrop",
				asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 50, expires in 6m0s\n> RMD /a\n< 250 ok\n" + bye},
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
				o.Server.Check = 0
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
					t.Errorf("given back with %v", err)
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
		"after a disconnect and a lost reply to what takes it up again": {
			scripts: []string{asLocks() + grant42 + "> SITE LOCK INFO /a\ndrop", asLocks() + "> MKD /a\ndrop",
				asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 51, expires in 6m0s, adopted from token 50\n" + heard + giveBack},
			change: func(o *wish) { o.Server.Check = time.Second }, after: 1900 * time.Millisecond, token: 51,
		},
		"while the server does not know for some seconds": {
			scripts: []string{asLocks() + grant42 + ask42 + notNow + notNow + ask42 + notNow + ask42 + giveBack},
			change:  func(o *wish) { o.Server.Check = time.Second }, after: 6*time.Second + 500*time.Millisecond, token: 42,
		},
		"on a new connection when the server has not known for five seconds": {
			scripts: []string{asLocks() + grant42 + strings.Repeat(notNow, 5),
				asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 43, adopted from token 42, expires in 6m0s\n" + heard + giveBack},
			change: func(o *wish) { o.Server.Check = time.Second }, after: 5*time.Second + 500*time.Millisecond, token: 43,
		},
		"while the server cannot renew it": {
			scripts: []string{asLocks() + grant42 + ask42 + ask42 + "> SITE LOCK RENEW /a\n< 451 /a: not now: etcd does not answer; nothing was changed, try again\n",
				asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 43, adopted...\n> SITE LOCK RENEW /a\n< 200 \"/a\" locked, token 43, expires in 6m0s\n" + heard + giveBack},
			change: func(o *wish) { o.Server.Check, o.Renew = time.Minute, true }, after: 3*time.Minute + 10*time.Second, token: 43,
		},
		"after a disconnect, by its directory": {
			scripts: []string{asOthers() + asked + "> MDTM /a\ndrop", asOthers() + same + same + giveBack}, after: 9 * time.Second,
		},
		"where the server cannot tell of directories": {
			scripts: []string{asOthers() + "> MKD /a\n< 257 \"/a\" created\n> MDTM /a\n< 550 no\n> EPSV\n< 500 no\n> PASV\n< 500 no\n" +
				"> MDTM /a\n< 550 no\n> PASV\n< 500 no\n> NOOP\n< 200 ok\n" +
				"> MDTM /a\n< 550 no\n> PASV\n< 500 no\n> NOOP\n< 200 ok\n" + giveBack}, after: 6 * time.Second,
		},
		"by asking for a full age when half of it is over": {
			scripts: []string{asLocks() + grant42 + ask42 + ask42 + "> SITE LOCK RENEW /a\n< 200 \"/a\" locked, token 42, expires in 6m0s\n" + ask42 + ask42 + giveBack},
			change:  func(o *wish) { o.Server.Check, o.Renew = time.Minute, true }, after: 5*time.Minute + time.Second, token: 42,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				o := s.options()
				o.Server.Check = 0
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
	asks, _, _ := strings.Cut(ask42, "\n")
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		scripts []string
		ctx     context.Context
		asked   bool // a question is under way
		want    error
		says    string
		took    time.Duration
	}{
		"is done when the reply is lost and the lock is gone": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\ndrop", asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 43, never expires\n" + giveBack},
		},
		"is said again when the reply is lost and the lock stands": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\ndrop", asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 43, never expires, adopted from token 42\n" + heard + giveBack},
		},
		"says that the lock was lost": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\n< 550 /a: taken away 2s ago: older than 6m0s\n" + bye},
			want:    ErrLost, says: "the lock was lost: /a: taken away 2s ago: older than 6m0s",
		},
		"does not remove another directory": {
			scripts: []string{asOthers() + asked + "> MDTM /a\n< 213 20000101000009\n" + bye}, want: ErrLost,
		},
		"says that the lock stands when the server does not let it go": {
			scripts: []string{asOthers() + asked + same + "> RMD /a\n< 550 not empty\n" + bye}, want: ErrUnknown,
		},
		"says that the lock may stand when the server does not answer": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\nhang"}, want: ErrUnknown, took: 31 * time.Second,
		},
		"is tried though ctx has ended": {
			scripts: []string{asLocks() + grant42 + giveBack}, ctx: canceled,
		},
		"takes a few seconds after the end of ctx": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\nhang"}, ctx: canceled, want: ErrUnknown, took: 3 * time.Second,
		},
		"is said again when the server fails for the moment": {
			scripts: []string{asLocks() + grant42 + "> RMD /a\n< 451 /a: no space left\n" + giveBack},
		},
		"says that the lock stands when the server fails every time": {
			scripts: []string{asLocks() + grant42 + strings.Repeat("> RMD /a\n< 451 /a: no space left\n", 4) + bye},
			want:    ErrUnknown,
		},
		"waits for a question that the server does not answer, and may not be done": {
			scripts: []string{asLocks() + grant42 + asks + "\nhang", "hang"}, asked: true,
			want: ErrUnknown, says: "the lock's state is not known: /a: the server does not answer",
		},
		"waits for such a question, and is done on a new connection": {
			scripts: []string{asLocks() + grant42 + asks + "\nhang", asLocks() + "> MKD /a\n< 257 \"/a\" locked, token 43, never expires, adopted from token 42\n" + heard + giveBack},
			asked:   true,
		},
		"is not sent behind such a question where it could end another lock": {
			scripts: []string{asOthers() + asked + "> MDTM /a\nhang", asOthers() + same + same + giveBack}, asked: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				o := s.options()
				if c.asked {
					o.Server.Check = time.Second
				}
				l := mustAcquire(t, o)
				began := time.Now()
				ctx := c.ctx
				if ctx == nil {
					ctx = t.Context()
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
