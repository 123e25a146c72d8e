package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ftplockd/ftplockd/internal/event"
)

func TestEachEventIsCounted(t *testing.T) {
	m := New(State{
		Held: func() int { return 3 }, Waiting: func() int { return 2 }, Sessions: func() int { return 4 }, Transfers: func() int { return 1 },
		JournalSize: func() int64 { return 4096 }, Dropped: func() uint64 { return 5 }, Version: "1.2.3",
	})
	m.Sink([]event.Event{
		{Kind: event.Acquire, Cause: "acquire", Waited: time.Second, Free: 2 * time.Millisecond},
		{Kind: event.Acquire, Cause: "acquire"},
		{Kind: event.Refuse, Cause: "held"},
		{Kind: event.Release, Cause: "release", Held: time.Second},
		{Kind: event.Expire, Cause: "idle", Held: time.Minute, Late: 20 * time.Millisecond},
		{Kind: event.Break, Cause: "break"},
		{Kind: event.Protect},
		{Kind: event.Publish, Bytes: 100},
		{Kind: event.Download, Bytes: 50},
		{Kind: event.Download, Bytes: 7, Reason: "the client closed the data connection"},
		{Kind: event.Discard, Cause: "hung-up"},
		{Kind: event.Discard},
		{Kind: event.Login},
		{Kind: event.LoginFailed},
		{Kind: event.Reload},
		{Kind: event.Reload, Reason: "line 3"},
	})
	m.Synced(time.Millisecond)
	m.Hooked("timeout")
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	got := w.Body.String()
	for _, want := range strings.Split(strings.TrimSpace(`
grants_total{cause="acquire"} 2
refusals_total{reason="held"} 1
refusals_total{reason="disk-full"} 0
releases_total{cause="release"} 1
releases_total{cause="idle"} 1
releases_total{cause="break"} 1
handover_seconds_count 1
handover_seconds_sum 0.002
hold_seconds_count 3
hold_seconds_sum 61
reaper_lag_seconds 0.02
protected_refusals_total 1
transfers_total{direction="up"} 1
transfer_bytes_total{direction="up"} 100
transfers_total{direction="down"} 1
transfer_bytes_total{direction="down"} 57
uploads_discarded_total{reason="hung-up"} 1
uploads_discarded_total{reason="disk-full"} 0
uploads_discarded_total{reason="other"} 1
logins_total{result="ok"} 1
logins_total{result="failed"} 1
reloads_total{result="ok"} 1
reloads_total{result="failed"} 1
journal_sync_seconds_count 1
hook_runs_total{result="timeout"} 1
locks_held 3
waiting 2
sessions 4
transfers 1
journal_bytes 4096
events_dropped_total 5
build_info{version="1.2.3"} 1`), "\n") {
		if !strings.Contains(got, "\nftplockd_"+want+"\n") {
			t.Errorf("no ftplockd_%s", want)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(fmt.Sprint(p))
	}
}

func TestOneStateOfAServerOfSeveralIsOne(t *testing.T) {
	m := New(State{Cluster: func() string { return "active" }, States: []string{"standby", "active"}})
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{`ftplockd_cluster_state{state="standby"} 0`, `ftplockd_cluster_state{state="active"} 1`} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s in %s", want, w.Body)
		}
	}
}
