package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/status"
)

// house is a Source for tests.
type house struct {
	mu        sync.Mutex
	locks     []status.Lock
	waiting   map[string][]status.Waiter
	broken    []string
	kicked    []string
	ready     func(context.Context) error
	state     string
	doubt     error
	updates   int                 // calls of Locks
	slow      time.Duration       // how long Locks takes
	slowQueue time.Duration       // and Waiting
	changed   map[string]*Account // accounts after a reload; nil: removed
	history   []status.Event
	problem   error // of the history
	fails     error // of Break and Kick
}

func (h *house) Locks() []status.Lock {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.updates++
	time.Sleep(h.slow)
	return slices.Clone(h.locks)
}

// set replaces the locks.
func (h *house) set(locks ...status.Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.locks = locks
}

func (h *house) Count() (held, waiting int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, l := range h.locks {
		if i == 0 || h.locks[i-1].Name != l.Name { // the holds of one name have one queue
			waiting += l.Waiting
		}
	}
	return len(h.locks), waiting
}

func (h *house) Waiting(name string) []status.Waiter {
	time.Sleep(h.slowQueue)
	return h.waiting[name]
}

func (h *house) History(context.Context, string, int) ([]status.Event, error) {
	return h.history, h.problem
}

func (h *house) Rule(name string) []Fact {
	if !strings.HasPrefix(name, "/locks/") {
		return nil
	}
	return []Fact{{"match", "/locks/*"}, {"protects", "/<b>"}}
}

func (h *house) Sessions() []status.Session {
	return []status.Session{{ID: "1-2", Account: "joe", Address: "192.0.2.1", Holds: 1}}
}

func (h *house) RefusedJobs() []status.RefusedJob { return nil }

func (h *house) Transfers() []status.Transfer {
	return []status.Transfer{{Session: "1-2", Account: "joe", Address: "192.0.2.1", Path: "/big\x80file", Upload: true, Bytes: 3 << 20}}
}

func (h *house) Break(_ context.Context, _ string, token uint64, by, reason string) error {
	if h.fails != nil {
		return h.fails
	}
	h.broken = append(h.broken, fmt.Sprint(token, " ", by, " ", reason))
	return nil
}

func (h *house) Kick(session, by, reason string) error {
	if h.fails != nil {
		return h.fails
	}
	h.kicked = append(h.kicked, session+" "+by+" "+reason)
	return nil
}

func (h *house) LogIn(_ context.Context, user, password string, _ netip.Addr) (Account, error) {
	if password != "secret" {
		return Account{}, config.ErrLogin
	}
	a, _ := h.Account(user)
	return a, nil
}

func (h *house) Account(name string) (Account, bool) {
	if a, ok := h.changed[name]; ok {
		if a == nil {
			return Account{}, false
		}
		return *a, true
	}
	return Account{Name: name, CanView: name != "part", Admin: name == "boss", Credentials: "secret"}, true
}

func (h *house) State() string { return h.state }

func (h *house) Valid() error { return h.doubt }

func (h *house) Ready(ctx context.Context) error {
	if h.ready != nil {
		return h.ready(ctx)
	}
	return nil
}

// site is a Server behind a listener, and a browser.
type site struct {
	t      *testing.T
	server *Server
	url    string
	client *http.Client
}

func newSite(t *testing.T, h *house, change func(*Options)) *site {
	t.Helper()
	o := Options{Source: h, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { plain(w, 200, "metrics") })}
	if change != nil {
		change(&o)
	}
	s := &site{t: t, server: New(o)}
	l := httptest.NewServer(s.server.Handler())
	ctx, cancel := context.WithCancel(t.Context())
	var runs sync.WaitGroup
	runs.Go(func() { _ = s.server.Run(ctx) })
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
		cancel()
		runs.Wait()
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.url, s.client = l.URL, l.Client()
	s.client.Jar = jar
	return s
}

// do sends a request. With a form it is a POST, as a browser sends it from this page.
func (s *site) do(path string, form url.Values, change func(*http.Request)) (int, string) {
	s.t.Helper()
	method, body := http.MethodGet, io.Reader(nil)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if change != nil {
		change(r)
	}
	got, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

// want checks the status of an answer, and that it has a text.
func (s *site) want(status int, text, path string, form url.Values, change func(*http.Request)) string {
	s.t.Helper()
	got, body := s.do(path, form, change)
	if got != status || !strings.Contains(body, text) {
		s.t.Errorf("%s %v: status %d, want %d with %q:\n%s", path, form, got, status, text, body)
	}
	return body
}

func (s *site) logIn(user string) {
	s.t.Helper()
	s.want(200, user, "/login", url.Values{"user": {user}, "password": {"secret"}}, nil)
}

func TestNamesAreEscaped(t *testing.T) {
	h := &house{locks: []status.Lock{
		{Name: "/<script>alert(1)</script>", Token: 1, Holder: "joe@192.0.2.1", Waiting: 2, Note: "web3 <em>"},
		{Name: "/caf\x8e_lock", Token: 2, Holder: "joe"},
		{Name: "/a\"onmouseover=\u202ex\n", Token: 3, Holder: "joe"},
	}, waiting: map[string][]status.Waiter{"/<script>alert(1)</script>": {{Account: "ann", Address: "192.0.2.2"}, {Account: "<b>", Address: "192.0.2.3"}}}}
	s := newSite(t, h, nil)
	s.server.Sink([]event.Event{{Kind: event.Acquire, Lock: "/<img src=x>", Reason: "<i>"}})
	page := s.want(200, "/&lt;script&gt;alert(1)&lt;/script&gt;", "/", nil, nil)
	for _, want := range []string{`/caf\x8e_lock`, `/a&#34;onmouseover=\u202ex\n`, "/&lt;img src=x&gt;", "ann<wbr>@192.0.2.2", "joe<wbr>@192.0.2.1 <small>web3 &lt;em&gt;</small>", "/big\\x80file"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	for _, never := range []string{"<script>alert", "<img", "<i>", "Break", "\u202e"} {
		if strings.Contains(page, never) {
			t.Errorf("%q in\n%s", never, page)
		}
	}
	if page := s.want(200, "web3 &lt;em&gt;", "/?q=web3", nil, nil); strings.Contains(page, "_lock") {
		t.Errorf("a lock without the note in\n%s", page)
	}
}

func TestOtherHostNamesAreRefused(t *testing.T) {
	s := newSite(t, &house{}, func(o *Options) { o.Host = func(name string) bool { return name == "locks.example.org" } })
	for host, status := range map[string]int{
		"127.0.0.1:2180": 200, "localhost": 200, "[::1]:2180": 200, "locks.example.org:2180": 200, "LOCKS.example.org.": 200,
		"":                 200, // HTTP/1.0, as HAProxy asks; a browser always names a host
		"evil.example.com": 421, "evil.example.com:2180": 421, "localhost.evil.example.com": 421,
	} {
		s.want(status, "", "/", nil, func(r *http.Request) { r.Host = host })
	}
}

func TestTenThousandLocksMakeASmallPage(t *testing.T) {
	h := &house{}
	for i := range 10_000 {
		h.locks = append(h.locks, status.Lock{Name: fmt.Sprintf("/locks/%05d", i), Token: uint64(i + 1), Holder: "joe@192.0.2.1", Expires: status.Time{Time: time.Now().Add(time.Hour)}})
	}
	s := newSite(t, h, nil)
	page := s.want(200, "<b>10000</b> held", "/?page=3", nil, nil)
	if len(page) > 50_000 || !strings.Contains(page, ">/locks/00050<") || strings.Contains(page, ">/locks/00075<") || strings.Contains(page, ">/locks/00049<") {
		t.Errorf("%d bytes", len(page))
	}
	s.want(200, "1 in all", "/?q=09999&page=2", nil, nil)
	s.want(200, "/locks/09999", "/?q=09999", nil, nil)
}

func TestOpenPagesAreLimited(t *testing.T) {
	s := newSite(t, &house{}, nil)
	for range maxStreams {
		s.server.streams <- struct{}{}
	}
	s.want(503, "too many pages are open", "/stream", nil, nil)
}

func TestChartHasAnHour(t *testing.T) {
	h := &house{locks: []status.Lock{{Name: "/a", Waiting: 2}, {Name: "/a", Waiting: 2}, {Name: "/b", Waiting: 1}}}
	s := newSite(t, h, nil)
	for i := range 500 {
		s.server.sample(time.Unix(int64(i)*10, 0))
		if i == 498 {
			s.server.Sink([]event.Event{{Kind: event.Acquire, Waited: time.Second, Free: 2 * time.Millisecond}})
		}
	}
	var columns [4][]any
	if err := json.Unmarshal([]byte(s.want(200, "", "/chart.json", nil, nil)), &columns); err != nil {
		t.Fatal(err)
	}
	if n := len(columns[0]); n != samples || fmt.Sprint(columns[0][n-1], columns[1][n-1], columns[2][n-1], columns[3][n-1], columns[3][n-2]) != "4990 3 3 2 <nil>" {
		t.Errorf("%d samples, the last %v %v", n, columns[0][n-1], columns[3][n-1])
	}
}

// TestEventsOfOneGroupDoNotDisplaceThoseOfAnother adds more events of each group than it keeps. Downloads are not kept.
func TestEventsOfOneGroupDoNotDisplaceThoseOfAnother(t *testing.T) {
	var p past
	for i := range 250 {
		for k, kind := range []event.Kind{event.Acquire, event.Refuse, event.Publish, event.Login, event.Reload, event.Download, event.LoginFailed, event.LoginFailed} {
			p.add([]event.Event{{Kind: kind, Token: uint64(i), Time: time.Unix(int64(i), int64(k))}})
		}
	}
	for g, newest := range map[group]event.Kind{ofLocks: event.Acquire, ofRefusals: event.Refuse, ofFiles: event.Publish, ofLogins: event.LoginFailed, ofServer: event.Reload} {
		all := p.last(g)
		if len(all) != lastEvents || all[0].Kind != newest || all[0].Token != 249 || g != ofLogins && all[99].Token != 150 {
			t.Errorf("group %d: %d events, the newest %v", g, len(all), all[0])
		}
	}
	both := p.last(ofServer, ofLocks)
	if len(both) != 2*lastEvents || both[0].Kind != event.Reload || both[1].Kind != event.Acquire || both[1].Token != 249 {
		t.Errorf("two groups: %d events, the newest %v, %v", len(both), both[0], both[1])
	}
}
