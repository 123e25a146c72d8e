package locksmith

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

var ticket42 = Ticket{Token: 42, JobKey: "job", Path: "/a"}

// joinedFacts are the facts of a lock that another connection of the job holds.
func joinedFacts(token, facts string) string { return info("/a", token, "mine=job;"+facts) }

func TestAJoinedLockIsLost(t *testing.T) {
	const (
		graceful = "held=60.000;left=1800.000;longest=86340.000;age=86400.000;idle=1800.000;grace=15.000;"
		orphan   = "held=61.000;left=14.500;longest=14.500;age=86400.000;idle=1800.000;grace=15.000;"
		idle     = "held=60.000;left=19.500;longest=86340.000;age=86400.000;idle=20.000;"
		aged     = "held=50.000;left=9.999;longest=10.000;age=60.000;grace=15.000;"
	)
	for name, c := range map[string]struct {
		scripts []string
		want    error
		says    string
		at      time.Duration
	}{
		"before the server can end it, if the network fails and then the holder ends": {
			scripts: []string{asLocks() + joinedFacts("42", graceful) + asks + "hang", "hang"},
			want:    ErrLost, says: "the lock was lost: /a: no answer from the server for 13s: it may have ended the lock", at: 13 * time.Second,
		},
		"by the end of the connection of its holder": {
			scripts: []string{asLocks() + joinedFacts("42", graceful) + joinedFacts("42", orphan) + asks + "hang", "hang"},
			want:    ErrLost, says: "the lock was lost: /a: the connection of its holder has ended", at: 13500 * time.Millisecond,
		},
		"by its age": {
			scripts: []string{asLocks() + joinedFacts("42", aged) + asks + "hang", "hang"},
			want:    ErrLost, says: "the lock was lost: /a: its age of 1m0s is over", at: 7999 * time.Millisecond,
		},
		"before its idle time is over, if the network fails": {
			scripts: []string{asLocks() + joinedFacts("42", idle) + asks + "hang", "hang"},
			want:    ErrLost, says: "the lock was lost: /a: no answer from the server for 18s: it may have ended the lock", at: 17500 * time.Millisecond,
		},
		"by its release": {
			scripts: []string{asLocks() + joinedFacts("42", graceful) + "drop", asLocks() + gone + bye},
			want:    ErrLost, says: "the lock was lost: /a: no client holds it", at: time.Second,
		},
		"when the job acquires it anew": {
			scripts: []string{asLocks() + joinedFacts("42", graceful) + joinedFacts("43", "adopted=42;"+graceful) + joinedFacts("45", graceful) + bye},
			want:    ErrLost, says: "the lock was lost: /a: the job has token 45, and not 43", at: 2 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				w := s.options()
				w.Config.Check = time.Second
				l, err := Join(t.Context(), w.Config, ticket42, Options{})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				<-l.Context().Done()
				if at := time.Since(began); at != c.at {
					t.Errorf("after %v", at)
				}
				if err := l.Err(); !errors.Is(err, c.want) || err.Error() != c.says {
					t.Error(err)
				}
				if err := l.Release(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("released with %v", err)
				}
			})
		})
	}
}

// Release of a joined lock checks it, because its last check may be a second old.
func TestReleaseOfAJoinedLock(t *testing.T) {
	mine := joinedFacts("42", "left=360.000;age=360.000;")
	for name, c := range map[string]struct {
		scripts []string
		want    error
	}{
		"still held":                      {[]string{asLocks() + mine + mine + bye}, nil},
		"still held after a restart":      {[]string{asLocks() + mine + asks + "drop", "", asLocks() + mine + mine + bye}, nil},
		"lost":                            {[]string{asLocks() + mine + info("/a", "43", bob) + bye}, ErrLost},
		"not known without an answer":     {[]string{asLocks() + mine + asks + "hang"}, ErrUnknown},
		"on another server":               {[]string{asOthers() + same + same + bye}, nil},
		"lost by its directory elsewhere": {[]string{asOthers() + same + "> MDTM /a\n< 550 no\n" + bye}, ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				ticket := ticket42
				if strings.HasSuffix(name, "server") || strings.HasSuffix(name, "elsewhere") {
					ticket.Token = 0
				}
				l, err := Join(t.Context(), s.options().Config, ticket, Options{})
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := l.Release(t.Context()); !errors.Is(err, c.want) {
						t.Error(err)
					}
				}
			})
		})
	}
}

func TestJoin(t *testing.T) {
	mine := joinedFacts("42", "left=360.000;age=360.000;")
	for name, c := range map[string]struct {
		scripts []string
		token   uint64
		options Options
		want    error
		says    string
	}{
		"waits for the server": {scripts: []string{"", "< 421 shutting down\n", asLocks() + notNow, asLocks() + mine + mine + bye}},
		"waits no longer than the option Wait": {scripts: []string{"", "hang"}, options: Options{Wait: 5 * time.Second}, want: context.DeadlineExceeded,
			says: "/a: 10.0.0.1:21: no answer in time"},
		"accepts an older token":  {scripts: []string{asLocks() + mine + mine + bye}, token: 40},
		"refuses a later token":   {scripts: []string{asLocks() + mine + bye}, token: 43, want: ErrLost, says: "the lock was lost: /a: the job has token 42, and not 43"},
		"refuses to have none":    {scripts: []string{asLocks() + bye}, token: none, want: ErrLost, says: "the lock was lost: /a: the ticket has no token"},
		"fails if it is not held": {scripts: []string{asLocks() + gone + bye}, want: ErrLost, says: "the lock was lost: /a: no client holds it"},
		"fails for another job": {scripts: []string{asLocks() + info("/a", "43", bob) + bye}, want: ErrLost,
			says: "the lock was lost: /a: another job holds it, or the job key is wrong: held by bob@10.0.0.5"},
		"fails without its directory": {scripts: []string{asOthers() + "> MDTM /a\n< 550 no\n" + passive + "> LIST /\n< 150 go\ndata \n< 226 done\n" + bye}, token: none, want: ErrLost,
			says: "the lock was lost: /a: its directory is gone"},
		"refuses a long margin": {scripts: []string{asLocks() + mine + bye}, options: Options{Margin: 3 * time.Minute}, want: ErrRefused,
			says: "refused: /a: the lock can end after 6m0s, which is too short for a margin of 3m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, c.scripts, func(t *testing.T, s *scripted) {
				ticket := ticket42
				if c.token > 0 {
					ticket.Token = c.token % none
				}
				w := s.options()
				w.Config.JobKey = "that of the ticket counts"
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				l, err := Join(ctx, w.Config, ticket, c.options)
				if err == nil {
					err = l.Release(ctx)
				}
				oneLine(t, err)
				if !errors.Is(err, c.want) || c.says != "" && err.Error() != c.says {
					t.Error(err)
				}
			})
		})
	}
}

// none stands for a ticket without a token.
const none = 1 << 40

func TestATicketIsOneLineOfText(t *testing.T) {
	want := Ticket{Token: 42, JobKey: "a;b", Path: "/phone lock "}
	if got, err := ParseTicket(want.String()); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for _, text := range []string{"", "42", "42 key", "42 key ", "x key /a", "-1 key /a"} {
		if _, err := ParseTicket(text); !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "key") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
