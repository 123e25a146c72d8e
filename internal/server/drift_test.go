package server

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/internal/lock/etcd"
)

func TestSharedSettings(t *testing.T) {
	load := func() *config.Config {
		c := config.Default()
		a, b := config.DefaultAccount("ada", "$argon2id$hash"), config.DefaultAccount("bob", "$argon2id$other")
		a.Networks = []config.Network{{Prefix: netip.MustParsePrefix("10.0.0.0/8")}}
		c.Accounts = []config.Account{a, b}
		return c
	}
	for key, change := range map[string]func(*config.Config){
		"account":             func(c *config.Config) { c.Accounts[0].Password = "$argon2id$next" },
		"lock":                func(c *config.Config) { c.Rules[0].MaxAge = config.Duration{Duration: time.Second} },
		"root":                func(c *config.Config) { c.Root = "/other" },
		"etcd.ttl":            func(c *config.Config) { c.Etcd.TTL.Duration += time.Second },
		"etcd.history_days":   func(c *config.Config) { c.Etcd.HistoryDays++ },
		"etcd.history_size":   func(c *config.Config) { c.Etcd.HistorySize.Bytes++ },
		"etcd.shared_state":   func(c *config.Config) { c.Etcd.SharedState = "/shared" },
		"files.mode":          func(c *config.Config) { c.Files.Mode.FileMode = 0o600 },
		"ftp.status_file":     func(c *config.Config) { c.FTP.StatusFile = "/locks.json" },
		"locks.readers_share": func(c *config.Config) { c.Locks.ReadersShare = !c.Locks.ReadersShare },
		"tls.mode":            func(c *config.Config) { c.TLS.Mode = config.TLSRequired },
		"":                    func(c *config.Config) { slices.Reverse(c.Accounts); c.Listen = []string{":1"}; c.State = "/of_one" },
	} {
		c := load()
		change(c)
		one, other := etcd.Server{Settings: sharedSettings(load(), false)}, etcd.Server{Settings: sharedSettings(c, false)}
		if got := strings.Join(one.Differs(other), " "); got != key {
			t.Errorf("a change of %q changes %q", key, got)
		}
	}
	// Each start makes another hash of the built-in account's password.
	c := load()
	c.Accounts[0].Password = "$argon2id$next"
	if !maps.Equal(sharedSettings(load(), true), sharedSettings(c, true)) {
		t.Error("the password of the built-in account counts")
	}
}
