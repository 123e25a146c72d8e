package harness

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// LogBuffer has the log of a server.
type LogBuffer struct {
	mu    sync.Mutex
	text  strings.Builder
	grown chan struct{} // closed with the next write
}

// NewLogBuffer returns an empty buffer.
func NewLogBuffer() *LogBuffer { return &LogBuffer{grown: make(chan struct{})} }

// Write implements io.Writer.
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
	return l.text.Write(p)
}

func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Await returns when the text has been logged n times.
func (l *LogBuffer) Await(t testing.TB, text string, n int) {
	t.Helper()
	l.await(t, func(log string) bool { return strings.Count(log, text) >= n }, "not logged %d times: %q", n, text)
}

// AwaitLine returns when a line has all the words.
func (l *LogBuffer) AwaitLine(t testing.TB, words ...string) {
	t.Helper()
	l.await(t, func(log string) bool {
		for line := range strings.Lines(log) {
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
				return true
			}
		}
		return false
	}, "no line has %q", words)
}

func (l *LogBuffer) await(t testing.TB, has func(log string) bool, format string, args ...any) {
	t.Helper()
	deadline := time.After(Patience)
	for {
		l.mu.Lock()
		grown, log := l.grown, l.text.String()
		l.mu.Unlock()
		if has(log) {
			return
		}
		select {
		case <-grown:
		case <-deadline:
			t.Fatalf(format+"\n%s", append(args, l)...)
		}
	}
}

// Complaint returns a text in the log that reports a fault and is not allowed; "": there is none.
func (l *LogBuffer) Complaint(allowed ...string) string {
	for _, bad := range []string{"DATA RACE", "panic:", "goroutine ", "level=ERROR"} {
		if strings.Contains(l.String(), bad) && !strings.Contains(strings.Join(allowed, "\n"), bad) {
			return bad
		}
	}
	return ""
}
