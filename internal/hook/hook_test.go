package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ftplockd/ftplockd/internal/event"
	"github.com/ftplockd/ftplockd/internal/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a Runner with its log and the results of its runs.
type desk struct {
	*Runner
	log     bytes.Buffer
	mu      sync.Mutex
	results map[string]int
}

func newDesk(hooks ...Hook) *desk {
	d := &desk{results: make(map[string]int)}
	for i := range hooks {
		if hooks[i].Timeout == 0 {
			hooks[i].Timeout = 30 * time.Second
		}
		if hooks[i].On == nil {
			hooks[i].On = []event.Kind{event.Acquire}
		}
	}
	d.Runner = New(Options{Log: slog.New(slog.NewTextHandler(&d.log, nil)), Ran: func(result string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.results[result]++
	}}, hooks...)
	return d
}

// want closes the runner and checks the results of its runs.
func (d *desk) want(t *testing.T, results map[string]int, said ...string) {
	t.Helper()
	d.Close(t.Context())
	for result, n := range results {
		if d.results[result] != n {
			t.Errorf("%d runs %s, want %d", d.results[result], result, n)
		}
	}
	for _, text := range said {
		if !strings.Contains(d.log.String(), text) {
			t.Errorf("the log lacks %q:\n%s", text, &d.log)
		}
	}
}

func TestProgramsReadEventsInOrder(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv("FTPLOCKD_PASSWORD", "secret")
	d := newDesk(Hook{Run: []string{"/bin/sh", "-c", `cat >> "$0"; echo "[$FTPLOCKD_PASSWORD]" >> "$0"`, out}, Match: "/locks/**"})
	for i := range 3 {
		d.Sink([]event.Event{{Kind: event.Acquire, Lock: "/locks/a\x80", Token: uint64(i + 1), Holder: lock.Owner{Account: "joe", Address: "192.0.2.1"}}})
		d.Sink([]event.Event{{Kind: event.Release, Lock: "/locks/a"}})
		d.Sink([]event.Event{{Kind: event.Acquire, Lock: "/other"}})
	}
	d.want(t, map[string]int{"ok": 3, "failed": 0})
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 6 || lines[1] != "[]" {
		t.Fatalf("%q", lines)
	}
	for i := range 3 {
		var got map[string]any
		if err := json.Unmarshal([]byte(lines[2*i]), &got); err != nil {
			t.Fatal(err)
		}
		if got["event"] != "acquire" || got["token"] != float64(i+1) || got["lock"] != "/locks/a\ufffd" || got["lock_encoded"] != "/locks/a%80" || got["bytes"] != nil {
			t.Errorf("%v", got)
		}
	}
}

func TestEventsArePostedToURLs(t *testing.T) {
	var mu sync.Mutex
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type")+" "+string(body))
		mu.Unlock()
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}
	}))
	defer server.Close()
	on := []event.Kind{event.Publish}
	d := newDesk(Hook{On: on, URL: server.URL + "/here", Match: "/a"}, Hook{On: on, URL: server.URL + "/moved"}, Hook{On: on, URL: "http://127.0.0.1:1/"})
	d.Sink([]event.Event{{Kind: event.Publish, Path: "/a", Lock: "/a_lock", SHA256: "ba78"}})
	d.want(t, map[string]int{"ok": 1, "failed": 2}, "307 Temporary Redirect", "connection refused")
	if len(got) != 2 || !strings.Contains(strings.Join(got, ""), `POST /here application/json {"time":"0001-01-01T00:00:00Z","event":"publish","lock":"/a_lock","path":"/a","bytes":0,"sha256":"ba78"}`) {
		t.Errorf("%q", got)
	}
}

func TestFailedAndHangingHooksAreLogged(t *testing.T) {
	began := time.Now()
	d := newDesk(
		Hook{Run: []string{"/bin/sh", "-c", "echo broken; exit 3"}},
		Hook{Run: []string{"/nowhere/hook"}},
		Hook{Run: []string{"/bin/sh", "-c", "sleep 600 & sleep 600"}, Timeout: 100 * time.Millisecond},
		Hook{Run: []string{"/bin/sh", "-c", "sleep 5 &"}},
	)
	d.Sink([]event.Event{{Kind: event.Acquire, Lock: "/a"}})
	d.want(t, map[string]int{"failed": 2, "timeout": 1, "ok": 1}, "exit status 3: broken", "no such file", "the run exceeded its timeout of 100ms and was killed", "lock=/a")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestTooManyEventsAreDroppedAndCounted(t *testing.T) {
	dir := t.TempDir()
	running, free := filepath.Join(dir, "running"), filepath.Join(dir, "free")
	d := newDesk(Hook{Run: []string{"/bin/sh", "-c", `: > "$0"; until [ -e "$1" ]; do sleep 0.05; done`, running, free}})
	d.Sink([]event.Event{{Kind: event.Acquire}})
	awaitFile(t, running)
	for range maxQueued + 5 {
		d.Sink([]event.Event{{Kind: event.Acquire}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nothing that waits is run
	d.Close(ctx)
	d.Sink([]event.Event{{Kind: event.Acquire}})
	d.want(t, map[string]int{"dropped": maxQueued + 5, "failed": 1}, "hook is too slow")
}

// awaitFile waits until a hook has made a file.
func awaitFile(t *testing.T, name string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no file ", name)
		}
	}
}

func TestNewHooksKeepTheQueuesInOrder(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	script := `mkdir "$0/alone" || echo overlap >>"$0/out"; cat >>"$0/out"; : >"$0/running"; until [ -e "$0/free" ]; do sleep 0.02; done; rmdir "$0/alone"`
	h := Hook{On: []event.Kind{event.Acquire}, Run: []string{"/bin/sh", "-c", script, dir}, Timeout: 30 * time.Second}
	d := newDesk(h)
	take := func(token uint64) { d.Sink([]event.Event{{Kind: event.Acquire, Token: token}}) }
	take(1)
	awaitFile(t, file("running"))
	take(2)
	changed := h
	changed.Timeout = 40 * time.Second
	d.Set([]Hook{{On: []event.Kind{event.Login}, URL: "http://127.0.0.1:1/"}, changed}) // elsewhere in the list, and with another timeout
	take(3)
	d.Set(nil)
	take(99) // not for a hook that was removed
	d.Set([]Hook{h})
	take(4)
	if err := os.WriteFile(file("free"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.want(t, map[string]int{"ok": 4, "failed": 0, "dropped": 0})
	out, err := os.ReadFile(file("out"))
	if err != nil {
		t.Fatal(err)
	}
	var tokens []string
	for line := range strings.Lines(string(out)) {
		var got struct{ Token json.Number }
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		tokens = append(tokens, got.Token.String())
	}
	if got := strings.Join(tokens, " "); got != "1 2 3 4" {
		t.Errorf("runs with tokens %s, want 1 2 3 4", got)
	}
	if len(d.queues) != 1 || len(d.ending) != 0 {
		t.Errorf("%d queues, %d of removed hooks", len(d.queues), len(d.ending))
	}
}

func TestTheLogHasNoSecretOfAHook(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "Cannot POST "+r.RequestURI+" ("+r.URL.Path+")", http.StatusNotFound)
	}))
	defer server.Close()
	on, host := []event.Kind{event.Acquire}, strings.TrimPrefix(server.URL, "http://")
	d := newDesk(
		Hook{On: on, URL: "http://hidden0:hidden1@" + host + "/services/hidden2?token=hidden3&x=1"},
		Hook{On: on, URL: "http://hidden0:hidden1@127.0.0.1:1/hidden2?token=hidden3"},
		Hook{On: on, URL: "http://hidden0:hidden1@127.0.0.1:1/hidden2%zz"},
		Hook{On: on, Run: []string{"/bin/false", "--token=hidden3"}},
	)
	d.Sink([]event.Event{{Kind: event.Acquire, Lock: "/a"}})
	d.want(t, map[string]int{"failed": 4}, "hook=http://"+host+" ", "404 Not Found", "hook=http://127.0.0.1:1 ", "connection refused", "hook=/bin/false ", "exit status 1")
	if strings.Contains(d.log.String(), "hidden") {
		t.Errorf("the log has a secret:\n%s", &d.log)
	}
}

func TestTheLogOfAFailedHookIsShort(t *testing.T) {
	d := newDesk(Hook{Run: []string{"/bin/sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; exit 1"}})
	d.Sink([]event.Event{{Kind: event.Acquire}})
	d.want(t, map[string]int{"failed": 1}, "exit status 1: xxx")
	if n := d.log.Len(); n > maxOutput+1000 {
		t.Errorf("the log has %d bytes", n)
	}
}
