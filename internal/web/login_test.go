package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/status"
)

func TestOnlyAdministratorsWithAFormOfThisPageBreakAndKick(t *testing.T) {
	h := &house{locks: []status.Lock{{Name: "/a_lock", Token: 7, Holder: "joe@192.0.2.1"}}}
	s := newSite(t, h, nil)
	breaking := url.Values{"token": {"7"}, "reason": {"it hangs"}}
	s.want(200, "<h2>Log in</h2>", "/break", breaking, nil) // not logged in
	s.want(403, "wrong", "/login", url.Values{"user": {"boss"}, "password": {"guess"}}, nil)
	s.logIn("joe")
	s.want(403, "Only accounts with admin", "/break", breaking, nil)
	s.want(403, "Only accounts with admin", "/kick?id=1-2", nil, nil)
	s.want(200, "No lock", "/?q=nothing", url.Values(nil), nil)
	s.want(200, "Log in", "/logout", url.Values{}, nil)

	s.logIn("boss")
	s.want(200, `href="/break?token=7"`, "/", nil, nil)
	s.want(200, `href="/kick?id=1-2"`, "/", nil, nil)
	s.want(200, "Break this lock?", "/break?token=7", nil, nil)
	foreign := func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Origin", "https://evil.example.com")
	}
	s.want(403, "", "/break", breaking, foreign)
	s.want(403, "", "/break", breaking, func(r *http.Request) { // a browser that sends the origin only
		r.Header.Del("Sec-Fetch-Site")
		r.Header.Set("Origin", "https://evil.example.com")
	})
	s.want(403, "", "/kick", url.Values{"id": {"1-2"}, "reason": {"bye"}}, foreign)
	s.want(400, "Give a reason", "/break", url.Values{"token": {"7"}}, nil)
	s.want(409, "not held any more", "/break", url.Values{"token": {"8"}, "reason": {"x"}}, nil)
	if len(h.broken)+len(h.kicked) > 0 {
		t.Fatalf("broken %q, kicked %q before anybody was let", h.broken, h.kicked)
	}
	h.fails = errors.New("no room")
	s.want(409, "The lock was not broken: no room", "/break", breaking, nil)
	s.want(409, "The session was not ended: no room", "/kick", url.Values{"id": {"1-2"}, "reason": {"bye"}}, nil)
	h.fails = nil
	s.want(200, "held", "/break", breaking, nil)
	s.want(200, "End this session?", "/kick?id=1-2", nil, nil)
	s.want(404, "has ended", "/kick?id=1-9", nil, nil)
	s.want(200, "held", "/kick", url.Values{"id": {"1-2"}, "reason": {"bye"}}, nil)
	if fmt.Sprint(h.broken, h.kicked) != "[7 boss it hangs] [1-2 boss bye]" {
		t.Errorf("broken %q, kicked %q", h.broken, h.kicked)
	}
	s.want(200, "Log in", "/logout", url.Values{}, nil)
	s.want(200, "<h2>Log in</h2>", "/break", breaking, nil)
}

func TestOtherAddressesNeedALogin(t *testing.T) {
	h := &house{locks: []status.Lock{{Name: "/secret_lock", Token: 7}}}
	s := newSite(t, h, func(o *Options) { o.Login = true })
	for _, path := range []string{"/", "/stream", "/chart.json", "/break?token=7", "/kick?id=1-2"} {
		s.want(200, "<h2>Log in</h2>", path, nil, nil)
	}
	s.want(401, "log in", "/metrics", nil, nil)
	s.want(401, "log in", "/metrics", nil, func(r *http.Request) { r.SetBasicAuth("joe", "guess") })
	s.want(200, "metrics", "/metrics", nil, func(r *http.Request) { r.SetBasicAuth("joe", "secret") })
	s.want(200, "ok", "/healthz", nil, nil)
	h.state = "standby: b is active"
	s.want(200, "ok, standby: b is active", "/healthz", nil, nil)
	h.state = ""
	s.want(200, "ready", "/readyz", nil, nil)
	h.ready = func(context.Context) error { return errors.New("the disk is full") }
	s.want(503, "no lock can be granted: the disk is full", "/readyz", nil, nil)
	s.want(403, "sees a part of the tree only", "/login", url.Values{"user": {"part"}, "password": {"secret"}}, nil)
	s.want(200, "<h2>Log in</h2>", "/", nil, nil)
	s.logIn("joe")
	s.want(200, "/secret_lock", "/", nil, nil)
	s.want(200, "metrics", "/metrics", nil, nil)
}

func TestLoginEndsWhenItsAccountChanges(t *testing.T) {
	for why, after := range map[string]*Account{
		"removed":                 nil,
		"demoted":                 {Name: "boss", CanView: true, Credentials: "secret"},
		"with another password":   {Name: "boss", CanView: true, Admin: true, Credentials: "another"},
		"with a part of the tree": {Name: "boss", Credentials: "secret"},
	} {
		t.Run(why, func(t *testing.T) {
			h := &house{locks: []status.Lock{{Name: "/a_lock", Token: 7}}}
			s := newSite(t, h, func(o *Options) { o.Login = true })
			s.logIn("boss")
			s.want(200, "Break this lock?", "/break?token=7", nil, nil)
			h.changed = map[string]*Account{"boss": after}
			s.want(200, "<h2>Log in</h2>", "/break", url.Values{"token": {"7"}, "reason": {"x"}}, nil)
			s.want(200, "<h2>Log in</h2>", "/stream", nil, nil)
			s.want(401, "", "/metrics", nil, nil)
			h.changed = nil
			s.want(200, "<h2>Log in</h2>", "/", nil, nil) // it does not come back
			if len(h.broken) > 0 {
				t.Errorf("broken: %q", h.broken)
			}
		})
	}
}

func TestLoginsOfOneAccountEndNoOthers(t *testing.T) {
	s := newSite(t, &house{}, func(o *Options) { o.Login = true })
	s.logIn("boss")
	boss := s.client.Jar
	for range 2000 {
		s.server.visits.enter(Account{Name: "joe", CanView: true, Credentials: "secret"}, time.Now())
	}
	s.client.Jar = nil
	s.want(200, "<h2>Log in</h2>", "/", nil, nil)
	s.client.Jar = boss
	s.want(200, "boss", "/", nil, nil)
	if n := len(s.server.visits.byCookie); n != maxVisits+1 {
		t.Errorf("%d logins are remembered, want %d", n, maxVisits+1)
	}
}

func TestALoginEndsAfterTwelveHours(t *testing.T) {
	var v visits
	began := time.Now()
	cookie := v.enter(Account{Name: "joe"}, began)
	if a, ok := v.find(cookie, began.Add(visitLasts-1)); !ok || a.Name != "joe" {
		t.Errorf("before its end: %v, %v", a, ok)
	}
	if a, ok := v.find(cookie, began.Add(visitLasts)); ok {
		t.Errorf("at its end: %v", a)
	}
	v.enter(Account{Name: "ann"}, began.Add(visitLasts))
	if len(v.byCookie) != 1 {
		t.Errorf("%d logins are kept", len(v.byCookie))
	}
}

func TestCookiesAreNotForScriptsNorForOtherSites(t *testing.T) {
	s := newSite(t, &house{}, func(o *Options) { o.TLS = true })
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("user=boss&password=secret"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Host = "localhost"
	w := httptest.NewRecorder()
	s.server.Handler().ServeHTTP(w, r)
	cookie := w.Header().Get("Set-Cookie")
	for _, want := range []string{"HttpOnly", "Secure", "SameSite=Strict", "Max-Age=43200"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("no %s in %q", want, cookie)
		}
	}
	if policy := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; ") {
		t.Errorf("Content-Security-Policy: %s", policy)
	}
}
