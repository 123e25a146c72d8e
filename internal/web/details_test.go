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

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/status"
)

// inOrder checks that a page has texts in this order.
func inOrder(t *testing.T, page string, texts ...string) {
	t.Helper()
	rest := page
	for _, text := range texts {
		_, after, ok := strings.Cut(rest, text)
		if !ok {
			t.Fatalf("%q is missing, or comes before its place, in\n%s", text, page)
		}
		rest = after
	}
}

func TestThePageOfALockHasItsHoldsQueueRuleFilesAndHistory(t *testing.T) {
	size := int64(2048)
	h := &house{
		locks:   []status.Lock{{Name: "/locks/a", Token: 7, Holder: "joe", Address: "192.0.2.1", Note: "web3 <4711>"}, {Name: "/locks/b", Token: 8, Holder: "ann"}},
		waiting: map[string][]status.Waiter{"/locks/a": make([]status.Waiter, perList+2)},
		history: []status.Event{{Event: "acquire", Holder: "joe@192.0.2.1", Token: 7, Note: "earlier <note>"}, {Event: "publish", Path: "/a.tsv", Bytes: &size}},
	}
	s := newSite(t, h, nil)
	page := s.want(200, "joe@192.0.2.1", "/lock?name=/locks/a", nil, nil)
	inOrder(t, page, `<dt>Note</dt><dd class="whole">web3 &lt;4711&gt;</dd>`, "<dd>7</dd>", "and 2 more", "<dt>match</dt>", "/&lt;b&gt;", "/a.tsv", "2.0 KiB", "acquire", "earlier &lt;note&gt;")
	if strings.Contains(page, "ann") || strings.Contains(page, "/break") || strings.Contains(page, "publish") {
		t.Error(page)
	}
	h.doubt, h.problem = errors.New("etcd does not answer"), errors.New("the disk is broken")
	h.history = nil
	s.want(200, "granted these locks again: etcd does not answer", "/lock?name=/locks/a", nil, nil)
	s.want(200, "The history cannot be read: the disk is broken", "/lock?name=/other", nil, nil)
	h.problem = nil
	s.want(200, "The lock is not held.", "/lock?name=/locks/free", nil, nil) // a rule matches
	s.want(404, "No rule makes this name a lock.", "/lock?name=/other", nil, nil)
	s.want(200, "granted these locks again", "/", nil, nil)
}

func TestAPageThatIsNotMadeTakesNoTurn(t *testing.T) {
	s := newSite(t, &house{}, nil)
	s.server.historyTurn <- struct{}{}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(gone, http.MethodGet, s.url+"/lock?name=/a", nil)
	s.server.Handler().ServeHTTP(httptest.NewRecorder(), r) // the client is gone before its turn
	<-s.server.historyTurn
	func() {
		defer func() { _ = recover() }()
		_ = inTurn(t.Context(), s.server.historyTurn, func() time.Duration { panic("a page") })
	}()
	s.want(404, "", "/lock?name=/a", nil, nil)
}

func TestTheEventPageShowsAKindThatContainsAText(t *testing.T) {
	s := newSite(t, &house{}, nil)
	events := []event.Event{
		{Kind: event.Acquire, Lock: "/locks/a", Token: 7},
		{Kind: event.Refuse, Lock: "/locks/a", Account: "ann", Remote: "192.0.2.2", Reason: "held by joe"},
		{Kind: event.Publish, Path: "/f", Account: "joe", Bytes: 3},
		{Kind: event.Login, Account: "joe", Remote: "192.0.2.1"},
		{Kind: event.Reload, Reason: "line 3"},
		{Kind: event.Break, Lock: "/locks/b", Cause: "break"},
	}
	events[5].By.Account = "boss"
	for i := range events {
		events[i].Time = time.Unix(int64(i), 0)
	}
	s.server.Sink(events)
	rows := func(query string, want ...string) {
		t.Helper()
		page := s.want(200, "<h2", "/events?"+query, nil, nil)
		_, page, _ = strings.Cut(page, "<tbody>")
		if n := strings.Count(page, `class="kind"`); n != len(want) {
			t.Errorf("%s: %d events, want %d:\n%s", query, n, len(want), page)
		}
		inOrder(t, page, want...)
	}
	rows("", "break", "reload", "login", "publish", "refuse", "acquire")
	rows("kind=other", "break", "reload", "login", "publish", "refuse", "acquire")
	rows("kind=locks", "break", "acquire")
	rows("kind=refusals", "held by joe")
	rows("kind=files", "3 B")
	rows("kind=logins", "joe<wbr>@192.0.2.1")
	rows("kind=server", "line 3")
	rows("q=ann@192.0.2.2", "refuse")
	rows("q=/f", "publish")
	rows("q=boss", "break")
	rows("q=line+3", "reload")
	rows("kind=locks&q=refuse")
	s.server.Sink([]event.Event{{Kind: event.Protect, Path: "/p", Time: time.Unix(9, 0)}})
	rows("q=change+refused", "change refused")
	rows("q=protect", "change refused")
}

// TestFiltersKeepTheirText submits the text of the filter again and again, as a browser does.
func TestFiltersKeepTheirText(t *testing.T) {
	h := &house{locks: []status.Lock{{Name: `/a\b`, Token: 1, Holder: "joe"}, {Name: "/caf\x8e", Token: 2, Holder: `dom\ann`}}}
	s := newSite(t, h, nil)
	for _, l := range h.locks {
		s.server.Sink([]event.Event{{Kind: event.Acquire, Lock: l.Name, Account: l.Holder}})
	}
	for filter, found := range map[string]string{`a\b`: `/a\\b`, `a\\b`: `/a\\b`, `caf\x8e`: `/caf\x8e`, "caf\x8e": `/caf\x8e`, `dom\ann`: `/caf\x8e`} {
		for _, path := range []string{"/?q=", "/events?q="} {
			text := filter
			for range 3 {
				page := s.want(200, ">"+found+"<", path+url.QueryEscape(text), nil, nil)
				_, page, _ = strings.Cut(page, `name="q" value="`)
				text, _, _ = strings.Cut(page, `"`)
			}
			if text != escaped(filter) {
				t.Errorf("%s: the filter %q has become %q", path, filter, text)
			}
		}
	}
}

func TestAttentionIsForOldLocksLongQueuesAndRefusalsOfAnHour(t *testing.T) {
	now := time.Now()
	h := &house{waiting: make(map[string][]status.Waiter)}
	for i := range 8 {
		name := fmt.Sprint("/locks/", i)
		h.locks = append(h.locks, status.Lock{Name: name, Token: uint64(i + 1), Holder: "joe", Acquired: now.Add(-longHeld - time.Duration(i-2)*time.Minute), Waiting: i % 4})
		h.waiting[name] = []status.Waiter{{Account: fmt.Sprint("waits", i), Waited: 120}}[:min(1, i%4)]
	}
	h.locks = append(h.locks, status.Lock{Name: "/locks/7", Token: 9, Holder: "ann", Acquired: now, Waiting: 3}, status.Lock{Name: "/locks/8", Token: 10, Acquired: time.Time{}})
	s := New(Options{Source: h})
	for i := range 3 {
		at := now.Add(-time.Duration(i) * 31 * time.Minute)
		s.Sink([]event.Event{{Kind: event.Refuse, Lock: "/locks/a", Time: at, Account: "joe", Reason: fmt.Sprint("reason ", i)}, {Kind: event.Acquire, Lock: "/locks/c", Time: at}})
	}
	s.Sink([]event.Event{{Kind: event.Protect, Path: "/f", Time: now}})
	b := &s.board
	b.open(view{Page: 1})
	var old, queues []string
	for _, a := range b.oldLocked(now) {
		old = append(old, a.Name)
	}
	for _, w := range b.waitersLocked() {
		queues = append(queues, fmt.Sprint(w.Lock, " ", w.Place, w.Client, " ", w.Holder, w.MoreHolders))
	}
	if got := fmt.Sprint(old, queues); got != "[/locks/7 /locks/6 /locks/5 /locks/4 /locks/3] [/locks/3 1waits3 joe0 /locks/7 1waits7 joe1 /locks/2 1waits2 joe0 /locks/6 1waits6 joe0 /locks/1 1waits1 joe0 /locks/5 1waits5 joe0]" {
		t.Error(got)
	}
	refused := s.past.topRefusals(now.Add(-time.Hour))
	if len(refused) != 2 || refused[0].Name != "/locks/a" || refused[0].Count != 2 || refused[0].Client != "joe" || refused[0].Reason != "reason 1" || refused[1].Name != "/f" {
		t.Errorf("%+v", refused)
	}
}

func TestWaitingClientsHaveATableWithPlaceAndHolder(t *testing.T) {
	h := &house{waiting: make(map[string][]status.Waiter)}
	for i := range 6 {
		name := fmt.Sprint("/locks/", i)
		for place := range 10 - i {
			h.waiting[name] = append(h.waiting[name], status.Waiter{Account: fmt.Sprintf("client%d%d", i, place), Address: "192.0.2.2", Waited: 120})
		}
		h.locks = append(h.locks, status.Lock{Name: name, Token: uint64(i + 1), Holder: "joe", Address: "192.0.2.1", Waiting: 10 - i})
	}
	page := newSite(t, h, nil).want(200, "<b>45</b> waiting", "/", nil, nil)
	_, page, _ = strings.Cut(page, `id="waiting-title"`)
	page, more, _ := strings.Cut(page, "</table>")
	inOrder(t, page, "<th class=\"count\">Place</th>", "<th>Holder</th>", "/locks/0", ">1<", "client00<wbr>@192.0.2.2", "joe<wbr>@192.0.2.1", "2m",
		"/locks/0", ">5<", "client04", "/locks/1", ">1<", "client10", "/locks/3", ">5<", "client34")
	if n := strings.Count(page, "<tr>") - 1; n != shownWaiters || !strings.HasPrefix(more, "\n<p>and 25 more. ") {
		t.Errorf("%d rows, then %.20q", n, more)
	}
}

func TestOrdersOfTheTableOfLocks(t *testing.T) {
	for asked, want := range map[string]string{"": "", "name": "", "-name": "-name", "holder": "holder", "-since": "-since", "expires": "expires", "waiting": "waiting", "other": "", "-other": "", "--since": ""} {
		if got := sortKey(asked); got != want {
			t.Errorf("sortKey(%q) = %q, want %q", asked, got, want)
		}
	}
	for link, v := range map[string]view{"/?": {}, "/?page=2&q=a+b&sort=-since": {Filter: "a b", Sort: "-since", Page: 2}} {
		if got := v.link(v.Page); got != link {
			t.Errorf("link %q, want %q", got, link)
		}
	}
	columns := view{Sort: "-since"}.columns()
	if len(columns) != len(orders) || columns[2].Order != "descending" || columns[2].Link != "/?sort=since" || columns[0].Order != "" || columns[0].Link != "/?" || columns[1].Link != "/?sort=holder" {
		t.Errorf("%+v", columns)
	}
	if columns = (view{}).columns(); columns[0].Order != "ascending" || columns[0].Link != "/?sort=-name" {
		t.Errorf("%+v", columns)
	}
	never, soon, late := &status.Lock{}, &status.Lock{Expires: status.Time{Time: time.Unix(1, 0)}}, &status.Lock{Expires: status.Time{Time: time.Unix(2, 0)}}
	if compareExpiry(soon, late) >= 0 || compareExpiry(late, never) >= 0 || compareExpiry(never, soon) <= 0 || compareExpiry(never, never) != 0 {
		t.Error("locks are not in the order of their expiry")
	}
}

func TestTextsOfThePage(t *testing.T) {
	byBoss, ofAnn := event.Event{Reason: "\x01", Path: "/f", Bytes: 2, Token: 7}, event.Event{Account: "joe", Remote: "192.0.2.1"}
	byBoss.By.Account, ofAnn.Holder.Account, ofAnn.Holder.Address = "boss", "ann", "192.0.2.2"
	for _, c := range []struct{ got, want string }{
		{printable("a\\b\xff\u202e\n"), `a\\b\xff\u202e\n`},
		{span(59 * time.Second), "< 1m"}, {span(time.Minute), "1m"}, {span(time.Hour - 1), "59m"}, {span(time.Hour), "1h 00m"},
		{span(24*time.Hour - 1), "23h 59m"}, {span(49 * time.Hour), "2d 01h"},
		{byteCount(1023), "1023 B"}, {byteCount(1024), "1.0 KiB"}, {byteCount(1<<20 - 1), "1024.0 KiB"}, {byteCount(1 << 20), "1.0 MiB"}, {byteCount(1 << 62), "4.0 EiB"},
		{details(event.Event{}), ""}, {details(event.Event{Kind: event.Protect, Path: "/f", Reason: "held"}), "held"},
		{details(byBoss), `\x01, by boss, 2 B, token 7`},
		{client(event.Event{Account: "joe", Remote: "192.0.2.1"}), "joe@192.0.2.1"},
		{client(ofAnn), "ann@192.0.2.2"},
		{escaped("a\\b\xff\n"), `a\b\xff\n`}, {filterText("a", `b\c`), "a\n" + `b\c` + "\n" + `b\\c`},
		{fmt.Sprint(halvesOf("123456789012")), "{ 123456789012}"}, {fmt.Sprint(halvesOf("/a123456789012")), "{/a 123456789012}"},
		{fmt.Sprint(halvesOf("/a錠錠錠錠錠錠")), "{/a 錠錠錠錠錠錠}"}, {fmt.Sprint(halvesOf("/ae\u0301123456789012")), "{/ae\u0301 123456789012}"}, {fmt.Sprint(halvesOf("")), "{ }"},
		{fmt.Sprint(accountAndAddress("a@b@192.0.2.1")), "{a@b 192.0.2.1}"}, {fmt.Sprint(accountAndAddress("joe")), "{joe }"},
		{kindText(event.Event{Kind: event.Refuse, Cause: "held"}), "lock refused"}, {kindText(event.Event{Kind: event.Job}), "job refused"},
		{kindText(event.Event{Kind: event.Job, Cause: "two-runs"}), "two programs in one job"},
		{kindText(event.Event{Kind: event.LoginFailed, Cause: "password"}), "login failed"}, {kindText(event.Event{Kind: event.Unconfirmed, Cause: "reset"}), "publish, unconfirmed"},
		{kindText(event.Event{Kind: event.Expire, Cause: "idle"}), "expire, idle"}, {kindText(event.Event{Kind: event.Break, Cause: "break"}), "break"},
		{client(event.Event{Account: "joe"}), "joe"}, {client(event.Event{Remote: "192.0.2.1"}), "192.0.2.1"},
		{subject(event.Event{Path: "/f", Lock: "/a"}), "/f"}, {subject(event.Event{Lock: "/a"}), "/a"},
		{fmt.Sprint(stamp(time.Time{}), stamp(time.UnixMilli(7))), "0 7"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
