package server

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestTheLogInJSONHasSecondsAndAllBytesOfNames(t *testing.T) {
	var b strings.Builder
	slog.New(LogJSON.handler(&b, slog.LevelInfo)).Info("lock released", "lock", "/a\x8e", "age", 1500*time.Millisecond, "token", 7)
	var got map[string]any
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"lock": `/a\x8e`, "age_seconds": 1.5, "age": nil, "token": 7.0} {
		if got[key] != want {
			t.Errorf("%s: %v, want %v in %s", key, got[key], want, b.String())
		}
	}
}
