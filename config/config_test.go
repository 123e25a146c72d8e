package config_test

import (
	"io/fs"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
)

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
	if r.MaxAge != 24*time.Hour || r.MaxIdle != 30*time.Minute || r.Release != config.ReleaseAddress || !r.AllowCwd {
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
user_timeout = "2s"
max_connections = 7
max_connections_per_address = 3
status_file = ""
[tls]
mode = "required"
certificate = "c.pem"
key = "k.pem"
implicit_listen = [":990"]
[files]
mode = "640"
upload_max_age = "2m"
hang_up = "50ms"
durable = false
[locks]
directories = false
durable = false
readers_share = false
leftover_max_age = "48h"
[[account]]
name = "a"
password = "`+hash+`"
home = "/a"
start = "/b/c"
access = "write-only"
networks = ["10.0.0.0/8", "192.0.2.7", "fd00::/8"]
chmod = true
admin = true
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
queue = "off"
queue_hold = "8s"
reentrant = true
shared = ["a", "b"]
limit = 9
allow_cwd = false
[[lock]]
match = "/y"
`), "x.toml")
	if err != nil {
		t.Fatal(err)
	}
	rule := config.DefaultRule("/x/*")
	rule.MaxAge, rule.MaxIdle, rule.OnDisconnect, rule.Grace = 0, 20*time.Second, "release", 5*time.Second
	rule.LockDelay, rule.Release, rule.AllowCwd = time.Second, "anyone", false
	rule.Wait, rule.Queue, rule.QueueHold = 7*time.Second, "off", 8*time.Second
	rule.Reentrant, rule.Shared, rule.Limit = true, []string{"a", "b"}, 9
	want := &config.Config{
		Listen: []string{":21", "[::1]:2121"},
		Root:   "/srv/files",
		State:  "/srv/state",
		FTP: config.FTP{
			PassivePorts:             config.PortRange{First: 4000, Last: 4001},
			PublicAddress:            "ftp.example.org",
			IdleTimeout:              90 * time.Minute,
			UserTimeout:              2 * time.Second,
			MaxConnections:           7,
			MaxConnectionsPerAddress: 3,
		},
		TLS:   config.TLS{Mode: "required", Certificate: "c.pem", Key: "k.pem", ImplicitListen: []string{":990"}},
		Files: config.Files{Mode: fs.FileMode(0o640), UploadMaxAge: 2 * time.Minute, HangUp: 50 * time.Millisecond},
		Locks: config.Locks{LeftoverMaxAge: 48 * time.Hour},
		Accounts: []config.Account{
			{
				Name: "a", Password: hash, Home: "/a", Start: "/b/c", Access: "write-only", Chmod: true, Admin: true,
				Networks: []netip.Prefix{
					netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("fd00::/8"),
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

func TestAccountAllows(t *testing.T) {
	a := config.Account{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fe80::/10")}}
	for address, want := range map[string]bool{
		"10.1.2.3":        true,
		"11.1.2.3":        false,
		"::ffff:10.1.2.3": true, // how IPv4 arrives on a socket for both
		"fe80::1%eth0":    true,
		"fd00::1":         false,
	} {
		if got := a.Allows(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	if !(config.Account{}).Allows(netip.MustParseAddr("192.0.2.1")) {
		t.Error("an account without networks may come from anywhere")
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

func TestAccountIsFoundByItsExactName(t *testing.T) {
	c := &config.Config{Accounts: []config.Account{{Name: "a"}, {Name: "b", Home: "/b"}}}
	if a, ok := c.Account("b"); !ok || a.Home != "/b" {
		t.Error(a, ok)
	}
	if _, ok := c.Account("B"); ok {
		t.Error("names differ in case")
	}
}

func TestPortRange(t *testing.T) {
	for want, r := range map[string]config.PortRange{"": {}, "21": {21, 21}, "20-22": {20, 22}} {
		if r.String() != want {
			t.Errorf("%v: %q", want, r.String())
		}
	}
	if n := (config.PortRange{First: 20, Last: 22}).Len(); n != 3 {
		t.Error(n)
	}
	if n := (config.PortRange{First: 1, Last: 65535}).Len(); n != 65535 {
		t.Error(n)
	}
	if n := (config.PortRange{}).Len(); n != 0 {
		t.Error(n)
	}
}

func TestRestartKeysNamesWhatAReloadCannotChange(t *testing.T) {
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
	next.FTP.IdleTimeout++ // these a reload can change
	next.TLS.Certificate = "new.pem"
	next.Accounts = append(next.Accounts, config.Account{})
	next.Rules[0].MaxAge++
	want := "listen root state " +
		"tls.mode tls.implicit_listen locks.directories locks.durable"
	if got := strings.Join(config.RestartKeys(running, next), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRestartKeysTakesAnEmptyListForNone(t *testing.T) {
	next := config.Default()
	next.TLS.ImplicitListen = []string{}
	if got := config.RestartKeys(config.Default(), next); got != nil {
		t.Error(got)
	}
}
