package locksmith

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestAClientLooks(t *testing.T) {
	list := "> SITE LOCKS /g\\*/**\n< 211-2 locks are held:\n<  /g*/b: held by bob@10.0.0.5 for 3s, never expires, token 8\n" +
		"<  /g*/a: held by eve@10.0.0.6 for 3s, never expires, token 7; 1 in the queue\n" +
		"<  /gx/c: held by eve@10.0.0.6 for 3s, never expires, token 9\n< 211 End\n"
	inBubble(t, []string{looked() + held42 + gone42 + list + list + "> SITE LOCKS /g\\*/**\n< 211 no locks are held\ndrop"}, func(t *testing.T, s *scripted) {
		c, err := Dial(t.Context(), s.options().Server)
		if err != nil {
			t.Fatal(err)
		}
		if i, err := c.Info(t.Context(), "/a"); err != nil || !i.Held || i.Holders[0].Token != 42 || i.Path != "/a" {
			t.Errorf("%+v, %v", i, err)
		}
		if i, err := c.Info(t.Context(), "/a"); err != nil || i.Held {
			t.Errorf("%+v, %v", i, err)
		}
		all, err := c.List(t.Context(), "/g*")
		if err != nil || len(all) != 2 || all[0].Path != "/g*/a" || all[0].Waiting != 1 || all[1].Holders[0].Token != 8 {
			t.Errorf("%+v, %v", all, err)
		}
		if err := c.Wait(t.Context(), "/g*/"); err != nil {
			t.Error(err)
		}
		if _, err := c.List(t.Context(), ""); err == nil {
			t.Error("a lost connection was not told of")
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Info(t.Context(), "/a"); !errors.Is(err, ErrUnreachable) {
			t.Error(err)
		}
	})
}

func TestSeveralLocksOverOneConnection(t *testing.T) {
	take := func(name, token string) string {
		return "> MKD " + name + "\n< 257 \"" + name + "\" locked, token " + token + ", expires in 6m0s\n" + heard
	}
	info := func(name, token string) string {
		return "> SITE LOCK INFO " + name + "\n< 211-Lock " + name + "\n<  held by me@10.0.0.9 for 1s, expires in 5m0s, token " + token + "\n< 211 End\n"
	}
	adopt := func(name, token string) string {
		return "> MKD " + name + "\n< 257 \"" + name + "\" locked, token " + token + ", adopted from token 1, expires in 6m0s\n" + heard
	}
	inBubble(t, []string{
		// While a lock is held, a wait at the server is short: the connection is needed.
		asLocks() + take("/a", "1") + "> MKD /b\n< 550 /b: held by bob@10.0.0.5 for 12s, never expires\n> SITE WAIT 1\n< 200 ok\n> MKD /b\n! 900ms\n" +
			"< 257 \"/b\" locked, token 2, expires in 6m0s\n> SITE WAIT 0\n< 200 ok\n" + info("/a", "1") + "drop",
		asLocks() + adopt("/b", "3") + adopt("/a", "4") + "> SITE LOCK RENEW /b\n< 200 \"/b\" locked, token 3, expires in 6m0s\n> RMD /b\n< 250 ok\n> RMD /a\n< 250 ok\n" + bye,
	}, func(t *testing.T, s *scripted) {
		var log strings.Builder
		server := s.options().Server
		server.Check = time.Second
		server.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c, err := Dial(t.Context(), server)
		if err != nil {
			t.Fatal(err)
		}
		a, err := c.Acquire(t.Context(), "/a", Options{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Acquire(t.Context(), "/b", Options{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1950 * time.Millisecond) // b is asked for, finds the connection broken, and takes it up again; then a
		if a.Token() != 4 || b.Token() != 3 || !a.Valid() || !b.Valid() {
			t.Errorf("tokens %d and %d, %v, %v", a.Token(), b.Token(), a.Err(), b.Err())
		}
		if err := b.Renew(t.Context()); err != nil {
			t.Error(err)
		}
		for _, l := range []*Lock{b, a} {
			if err := l.Release(t.Context()); err != nil || l.Valid() || l.Err() != nil || !errors.Is(context.Cause(l.Context()), ErrLost) {
				t.Errorf("%s: %v, valid %t", l.Path(), err, l.Valid())
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if got := log.String(); strings.Count(got, "connected again") != 1 || strings.Count(got, "taken up again") != 2 {
			t.Errorf("the log: %s", got)
		}
	})
}

func TestMissingPromisesAreReported(t *testing.T) {
	for script, want := range map[string]int{looked(): 0, asOthers(): 3} {
		inBubble(t, []string{script + bye}, func(t *testing.T, s *scripted) {
			c, err := Dial(t.Context(), s.options().Server)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Missing(); len(got) != want {
				t.Errorf("missing: %q", got)
			}
			_ = c.Close()
		})
	}
}
