package server

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock"
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

func TestKeysReachTheTableAndTheConnections(t *testing.T) {
	c := config.Default()
	c.Locks.ReadersShare = false
	c.Rules[0].Wait.Duration = time.Second
	c.Rules[0].Shared, c.Rules[0].Limit = []string{"a"}, 3
	got := RulesOf(c)[0].Contention
	if got.Wait != time.Second || len(got.Shared) != 1 || got.ReadersShare || got.Limit != 3 {
		t.Errorf("got %+v", got)
	}
	c.FTP.UserTimeout.Duration = 7 * time.Second
	if got := limits(c).UserTimeout; got != 7*time.Second {
		t.Errorf("the user timeout of new connections is %v", got)
	}
	if defaults := RulesOf(config.Default())[0].Contention; !defaults.ReadersShare {
		t.Errorf("the defaults are %+v", defaults)
	}
}

func TestThePasswordForEtcdIsTheFirstLineOfItsFile(t *testing.T) {
	c := config.Default()
	c.Etcd.PasswordFile = filepath.Join(t.TempDir(), "word")
	for text, want := range map[string]string{"a word": "a word", "word\r\nmore\n": "word", "\nword\n": "", "": ""} {
		if err := os.WriteFile(c.Etcd.PasswordFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := EtcdOptions(c, lock.NewSystemClock(), nil)
		if o.Password != want || (err == nil) != (want != "") || err != nil && !strings.Contains(err.Error(), c.Etcd.PasswordFile+": its first line is empty") {
			t.Errorf("%q: the password is %q, %v", text, o.Password, err)
		}
	}
}

// The page shows the locks to administrators and to accounts whose home is the whole tree, and to no other account.
func TestThePageKnowsTheRightsOfEachAccount(t *testing.T) {
	s := new(server)
	a := admin{server: s}
	s.logins.Store(&config.Config{Accounts: []config.Account{
		{Name: "home", Home: "/home"}, {Name: "all", Home: "/"}, {Name: "admin", Home: "/home", Admin: true},
	}})
	for name, want := range map[string]struct{ looks, admin bool }{"home": {false, false}, "all": {true, false}, "admin": {true, true}} {
		if got, ok := a.Account(name); !ok || got.Name != name || got.CanView != want.looks || got.Admin != want.admin {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
	if got, ok := a.Account("none"); ok {
		t.Errorf("an unknown account: %+v", got)
	}
}
