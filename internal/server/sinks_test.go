package server

import (
	"encoding/json"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
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

// A second server of the quick start has no page. In a configuration file the address must be free.
func TestOnlyTheBuiltInAddressOfThePageMayBeInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c := config.Default()
	c.HTTP.Listen = taken.Addr().String()
	for _, file := range []string{"", "ftplockd.toml"} {
		w := &eventSinks{server: &server{config: c, log: slog.New(slog.DiscardHandler), options: Options{ConfigFile: file}}}
		if err := w.openPage(t.Context()); (err == nil) != (file == "") {
			t.Errorf("file %q: %v", file, err)
		}
	}
}
