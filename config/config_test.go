package config_test

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
)

func duration(d time.Duration) config.Duration { return config.Duration{Duration: d} }

func network(text string) config.Network {
	return config.Network{Prefix: netip.MustParsePrefix(text)}
}

func TestMissingKeysHaveTheirDefaults(t *testing.T) {
	got, err := config.Parse([]byte(`
ftp.passive_ports = "4000"
files.mode = "640"
locks.history_size = "3MiB"
[[account]]
name = "a"
password = "$2y$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234"
networks = ["10.0.0.0/8", "192.0.2.7", "fd00::/8"]
chmod = false
[[lock]]
match = "/x/*"
max_age = "1h30m"
[[lock]]
match = "/y"
allow_cwd = false
`), "x.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.FTP.PassivePorts = config.PortRange{First: 4000, Last: 4000}
	want.Files.Mode.FileMode = 0o640
	want.Locks.HistorySize.Bytes = 3 << 20
	account := config.DefaultAccount("a", "$2y$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234")
	account.Networks, account.Chmod = []config.Network{network("10.0.0.0/8"), network("192.0.2.7/32"), network("fd00::/8")}, false
	want.Accounts = []config.Account{account}
	x, y := config.DefaultRule("/x/*"), config.DefaultRule("/y")
	x.MaxAge, y.AllowCwd = duration(90*time.Minute), false
	want.Rules = []config.Rule{x, y}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLocksInEtcdHaveNoDirectories(t *testing.T) {
	for text, want := range map[string]bool{
		"": true,
		"[etcd]\nendpoints = [\"http://a:2379\"]":                               false,
		"[locks]\ndurable = true\n[etcd]\nendpoints = [\"http://a:2379\"]":      false,
		"locks.directories = false\netcd.endpoints = [\"http://a:2379\"]":       false,
		"[locks]\ndirectories = false\n[etcd]\nendpoints = [\"http://a:2379\"]": false,
	} {
		c, err := config.Parse([]byte(text), "f")
		if err != nil {
			t.Error(err)
		} else if c.Locks.Directories != want {
			t.Errorf("%q: locks.directories is %t", text, !want)
		}
	}
}

func TestKeepRestartKeysKeepsTheKeysThatNeedARestart(t *testing.T) {
	running, next := config.Default(), config.Default()
	next.Listen = []string{":21"}
	next.Root, next.State = "/r", "/s"
	next.FTP.PassivePorts.Last++
	next.FTP.PublicAddress = "192.0.2.1"
	next.FTP.Active = false
	next.TLS.Mode = config.TLSRequired
	next.TLS.ImplicitListen = []string{":990"}
	next.Locks.Directories = false
	next.Locks.Durable = false
	next.FTP.IdleTimeout.Duration++ // a reload can change these keys
	next.TLS.Certificate = "new.pem"
	next.Accounts = append(next.Accounts, config.Account{})
	next.Rules[0].MaxAge.Duration++
	want := "listen root state " +
		"tls.mode tls.implicit_listen locks.directories locks.durable"
	if got := strings.Join(next.KeepRestartKeys(running), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if again := next.KeepRestartKeys(running); again != nil || next.State != running.State || next.FTP.Active {
		t.Errorf("after that: %s, %+v", again, next)
	}
}
