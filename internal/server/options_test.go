package server

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
)

func TestLoadPutsFlagsOverTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.toml")
	if err := os.WriteFile(file, []byte("listen = [\":1\"]\nroot = \"/file/root\"\nstate = \"/file/state\""), 0o600); err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.HTTP.Listen = builtinHTTP
	if got, err := (Options{}).Load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Error("without anything:", got, err)
	}
	want.HTTP.Listen = ""
	want.Listen, want.Root, want.State = []string{":1"}, "/file/root", "/file/state"
	if got, err := (Options{ConfigFile: file}).Load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Error("a file:", got, err)
	}
	want.Listen, want.Root, want.State = []string{":2", ":3"}, "/flag/root", "/flag/state"
	all := Options{ConfigFile: file, Listen: []string{":2", ":3"}, Root: "/flag/root", State: "/flag/state"}
	if got, err := all.Load(); err != nil || !reflect.DeepEqual(got, want) {
		t.Error("a file and flags:", got, err)
	}
}

func TestEveryKeyOfContentionReachesTheTable(t *testing.T) {
	c := config.Default()
	c.Locks.ReadersShare = false
	c.Rules[0].Wait.Duration = time.Second
	c.Rules[0].Shared, c.Rules[0].Limit = []string{"a"}, 3
	got := RulesOf(c)[0].Contention
	if got.Wait != time.Second || len(got.Shared) != 1 || got.ReadersShare || got.Limit != 3 {
		t.Errorf("got %+v", got)
	}
	if defaults := RulesOf(config.Default())[0].Contention; !defaults.ReadersShare {
		t.Errorf("the defaults are %+v", defaults)
	}
}
