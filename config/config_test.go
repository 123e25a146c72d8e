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

func TestDefaultIsValid(t *testing.T) {
	if err := config.Default().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestAnEmptyFileIsTheDefault(t *testing.T) {
	got, err := config.Parse(nil, "x.toml")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, config.Default()) {
		t.Errorf("got %+v", got)
	}
}

func TestDefaultRulesFitWhatPeopleCallLocks(t *testing.T) {
	want := []string{"/locks/**", "**/*_lock", "**/*.lock", "**/.*-lock"}
	var got []string
	for _, r := range config.Default().Rules {
		got = append(got, r.Match)
		if !reflect.DeepEqual(r, config.DefaultRule(r.Match)) {
			t.Errorf("%+v", r)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	r := config.DefaultRule("/x")
	if r.MaxAge != duration(24*time.Hour) || r.MaxIdle != duration(30*time.Minute) || r.Release != config.ReleaseAddress || !r.AllowCwd {
		t.Errorf("%+v", r)
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	const hash = "$2y$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234"
	got, err := config.Parse([]byte(`
listen = [":21", "[::1]:2121"]
root = "/srv/files"
state = "/srv/state"
[ftp]
passive_ports = "4000-4001"
public_address = "ftp.example.org"
active = false
idle_timeout = "1h30m"
data_timeout = "0"
data_min_rate = 5
user_timeout = "2s"
login_timeout = "3s"
max_connections = 7
max_connections_per_address = 3
status_file = ""
[tls]
mode = "required"
session_reuse = "required"
certificate = "c.pem"
key = "k.pem"
implicit_listen = [":990"]
[files]
mode = "640"
hang_up = "50ms"
durable = false
[locks]
directories = false
durable = false
readers_share = false
leftover_max_age = "48h"
history_days = 30
history_size = "3MiB"
[[account]]
name = "a"
password = "`+hash+`"
home = "/a"
start = "/b/c"
access = "write-only"
networks = ["10.0.0.0/8", "192.0.2.7", "fd00::/8"]
chmod = true
admin = true
max_locks = 12
[[account]]
name = "b"
password = "`+hash+`"
[[lock]]
match = "/x/*"
max_age = "0"
max_idle = "20s"
on_disconnect = "release"
grace = "5s"
lock_delay = "1s"
release = "anyone"
wait = "7s"
queue = "fair"
queue_hold = "8s"
reentrant = true
shared = ["a", "b"]
limit = 9
write_as = "account"
members = "anyone"
allow_cwd = false
[[lock]]
match = "/y"
`), "x.toml")
	if err != nil {
		t.Fatal(err)
	}
	rule := config.DefaultRule("/x/*")
	rule.MaxAge, rule.MaxIdle, rule.OnDisconnect, rule.Grace = duration(0), duration(20*time.Second), "release", duration(5*time.Second)
	rule.LockDelay, rule.Release, rule.AllowCwd = duration(time.Second), "anyone", false
	rule.Wait, rule.Queue, rule.QueueHold = duration(7*time.Second), "fair", duration(8*time.Second)
	rule.Reentrant, rule.Shared, rule.Limit = true, []string{"a", "b"}, 9
	rule.WriteAs, rule.Members = "account", "anyone"
	want := &config.Config{
		Listen: []string{":21", "[::1]:2121"},
		Root:   "/srv/files",
		State:  "/srv/state",
		FTP: config.FTP{
			PassivePorts:             config.PortRange{First: 4000, Last: 4001},
			PublicAddress:            "ftp.example.org",
			IdleTimeout:              duration(90 * time.Minute),
			UserTimeout:              duration(2 * time.Second),
			LoginTimeout:             duration(3 * time.Second),
			DataMinRate:              5,
			MaxConnections:           7,
			MaxConnectionsPerAddress: 3,
		},
		TLS:   config.TLS{Mode: "required", SessionReuse: "required", Certificate: "c.pem", Key: "k.pem", ImplicitListen: []string{":990"}},
		Files: config.Files{Mode: config.Mode{FileMode: 0o640}, HangUp: duration(50 * time.Millisecond)},
		Locks: config.Locks{LeftoverMaxAge: duration(48 * time.Hour), HistoryDays: 30, HistorySize: config.Size{Bytes: 3 << 20}},
		Accounts: []config.Account{
			{
				Name: "a", Password: hash, Home: "/a", Start: "/b/c", Access: "write-only", Chmod: true, Admin: true, MaxLocks: 12,
				Networks: []config.Network{
					network("10.0.0.0/8"), network("192.0.2.7/32"), network("fd00::/8"),
				},
			},
			config.DefaultAccount("b", hash),
		},
		Rules: []config.Rule{rule, config.DefaultRule("/y")},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAccountAccess(t *testing.T) {
	for access, want := range map[string][2]bool{
		"read-write": {true, true}, "read-only": {true, false}, "write-only": {false, true},
	} {
		a := config.Account{Access: access}
		if got := [2]bool{a.Reads(), a.Writes()}; got != want {
			t.Errorf("%s: reads, writes: %v", access, got)
		}
	}
}

func TestKeepRestartKeysNamesAndKeepsWhatAReloadCannotChange(t *testing.T) {
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
	next.FTP.IdleTimeout.Duration++ // these a reload can change
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

func TestDurationsAreWrittenAsInTheFile(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "1m30s": 90 * time.Second, "10m": 10 * time.Minute, "24h": 24 * time.Hour, "1h30m": 90 * time.Minute, "1h0m5s": time.Hour + 5*time.Second,
	} {
		if got := duration(d).String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
