package driver

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/internal/event"
)

// notebook records events in their order.
type notebook struct {
	mu      sync.Mutex
	entries []string
}

func (n *notebook) note(format string, a ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries = append(n.entries, fmt.Sprintf(format, a...))
}

// all returns the entries so far.
func (n *notebook) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.entries)
}

// await returns the entries when count of them have the prefix.
func (n *notebook) await(t *testing.T, prefix string, count int) []string {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		entries := n.all()
		if len(those(entries, prefix)) >= count {
			return entries
		}
		if time.Now().After(end) {
			t.Fatalf("there are not %[2]d entries %[1]q:\n%[3]s", prefix, count, strings.Join(entries, "\n"))
		}
	}
}

// those returns the entries with the prefix.
func those(entries []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(entries), func(e string) bool { return !strings.HasPrefix(e, prefix) })
}

// ofFiles records the events of uploads and of protected files: kind, path, lock, token, holder, bytes, digest, cause.
func (n *notebook) ofFiles(o *setup) {
	o.events = func(batch []event.Event) {
		for _, e := range batch {
			switch e.Kind {
			case event.Protect, event.Discard, event.Publish, event.Unconfirmed:
				n.note("%s", strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %d %s %d %.4s %s", e.Kind, e.Path, e.Lock, e.Token, e.Holder, e.Bytes, e.SHA256, e.Cause)), " "))
			}
		}
	}
}

// logged collects the log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// logger returns a logger of all levels.
func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
