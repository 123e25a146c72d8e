package driver

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// lines is a log that is kept.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// Who knows the nonce of a job speaks for its locks, and who reads the log must be able to find the session of a line.
func TestTheLogHasNoNonceAndTheIDsThatTheListHas(t *testing.T) {
	var log lines
	s := start(t, func(o *setup) {
		o.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	a := s.as("phoneacc")
	a.want("site  lock  as hush-hush", "200 *")
	a.want("SITE LOCK AS hush-hush", "200 *")
	a.want("MKD /locks/a", "257 *")
	if log.has("hush") {
		t.Error("the nonce is in the log")
	}
	id := s.table.Sessions()[0].Owner.Session.String()
	if !log.has(`session=` + id + ` line="MKD /locks/a"`) {
		t.Errorf("session %s is not in the log", id)
	}
}
