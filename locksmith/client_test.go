package locksmith

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestInfo(t *testing.T) {
	inBubble(t, []string{asLocks() + ask42 + gone + "> SITE LOCK INFO /a\ndrop"}, func(t *testing.T, s *scripted) {
		c := mustDial(t, s.options().Server)
		if i, err := c.Info(t.Context(), "/a"); err != nil || !i.Held || i.Holders[0].Token != 42 || !i.Holders[0].Mine || i.Path != "/a" {
			t.Errorf("%+v, %v", i, err)
		}
		if i, err := c.Info(t.Context(), "/a"); err != nil || i.Held {
			t.Errorf("%+v, %v", i, err)
		}
		if _, err := c.Info(t.Context(), "/a"); err == nil {
			t.Error("no error for a lost connection")
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.Info(t.Context(), "/a"); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	})
}

func TestCloseEndsTheLocksThatAreHeld(t *testing.T) {
	inBubble(t, []string{asLocks() + grant("42", "left=355.000;age=360.000;") + bye}, func(t *testing.T, s *scripted) {
		c := mustDial(t, s.options().Server)
		l, err := c.Acquire(t.Context(), "/a", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if l.Valid() || !errors.Is(context.Cause(l.Context()), ErrLost) {
			t.Errorf("the lock after Close: %v", context.Cause(l.Context()))
		}
		time.Sleep(time.Minute) // no check connects again
		if _, err := c.Acquire(t.Context(), "/a", Options{}); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	})
}

// A lock that the parent process holds is checked, but neither adopted nor released.
func TestInherit(t *testing.T) {
	mine := info("/a", "43", "mine=job;left=355.000;age=360.000;")
	inBubble(t, []string{asLocks() + mine + mine + "drop", asLocks() + gone + bye}, func(t *testing.T, s *scripted) {
		server := s.options().Server
		server.Check = time.Second
		c := mustDial(t, server)
		defer c.Close()
		l, err := c.Inherit(t.Context(), "/a", 42) // the holder had to connect again
		if err != nil {
			t.Fatal(err)
		}
		<-l.Context().Done()
		if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	})
	for _, other := range []string{gone, info("/a", "43", bob), info("/a", "41", "mine=job;")} {
		inBubble(t, []string{asLocks() + other + bye}, func(t *testing.T, s *scripted) {
			c := mustDial(t, s.options().Server)
			defer c.Close()
			if _, err := c.Inherit(t.Context(), "/a", 42); !errors.Is(err, ErrLost) {
				t.Error(err)
			}
		})
	}
}

func TestSeveralLocksOverOneConnection(t *testing.T) {
	const left = "mine=session;left=300.000;age=360.000;"
	take := func(name, token string) string { return "> MKD " + name + "\n< 257 ok\n" + info(name, token, left) }
	inBubble(t, []string{
		// While a lock is held, a wait at the server is short: the connection is needed.
		asLocks() + take("/a", "1") + "> MKD /b\n< 550 words\n" + info("/b", "7", bob) + "> SITE WAIT 1\n< 200 ok\n> MKD /b\n! 900ms\n" +
			"< 257 ok\n" + info("/b", "2", left) + info("/a", "1", left) + "drop",
		asLocks() + adopt("/b", "2", "3") + adopt("/a", "1", "4") + "> RMD /b\n< 250 ok\n> RMD /a\n< 250 ok\n" + bye,
	}, func(t *testing.T, s *scripted) {
		server := s.options().Server
		server.Check = time.Second
		c := mustDial(t, server)
		a, err := c.Acquire(t.Context(), "/a", Options{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Acquire(t.Context(), "/b", Options{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1950 * time.Millisecond) // the check of b finds the connection broken, and connects again; then a does
		if a.Token() != 4 || b.Token() != 3 || !a.Valid() || !b.Valid() {
			t.Errorf("tokens %d and %d, %v, %v", a.Token(), b.Token(), a.Err(), b.Err())
		}
		for _, l := range []*Lock{b, a} {
			if err := l.Release(t.Context()); err != nil || l.Valid() || l.Err() != nil || !errors.Is(context.Cause(l.Context()), ErrLost) {
				t.Errorf("%s: %v, valid %t", l.Path(), err, l.Valid())
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
