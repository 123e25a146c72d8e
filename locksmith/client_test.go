package locksmith

import (
	"errors"
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
		if err := c.Wait(t.Context(), "/g*/", time.Second); err != nil {
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
