package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/locksmith"
)

func TestProfilesSetEverything(t *testing.T) {
	p, err := parseProfiles("f", []byte(`
[a]
address = "ftp.example.com:2121"
user = "bob"
password_env = "X"
lock = "phone_lock"
dir = "/data"
tls = "explicit"
timeout = "10s"
wait = "1m"
poll = "2s"
renew = true
shared_user = "reader"
shared_password_file = "r.secret"
[b]
address = "::1"
lock = "/x"
`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.all["a"].target("a", "/etc", false)
	if err != nil {
		t.Fatal(err)
	}
	o, s := got.options, got.connect
	if s.Address != "ftp.example.com:2121" || s.User != "bob" || s.TLS != locksmith.TLSExplicit || s.Timeout != 10*time.Second || s.Dir != "/data" {
		t.Errorf("server %+v", s)
	}
	if got.path != "phone_lock" || got.wait != time.Minute || s.Poll != 2*time.Second || !o.Renew || o.Shared || got.secret.env != "X" {
		t.Errorf("options %+v", o)
	}
	got, err = p.all["a"].target("a", "/etc", true)
	if err != nil || got.connect.User != "reader" || !got.options.Shared || got.secret.file != "r.secret" || got.secret.env != "" {
		t.Errorf("shared: %+v %v", got, err)
	}
	if got, err = p.all["b"].target("b", "", true); err != nil || got.user() != "anonymous" {
		t.Errorf("anonymous: %+v %v", got, err)
	}
}

func TestMistakesInProfilesAreNamed(t *testing.T) {
	const good = "address = \"h\"\nlock = \"x\"\n"
	for _, c := range []struct{ file, want string }{
		{"[a]\n" + good + "usr = \"x\"", "f:4: a.usr: unknown key"},
		{"[a]\n" + good + "tls = \"yes\"", `f:4: a.tls: must be "off", "explicit" or "implicit"`},
		{"[a]\n" + good + "timeout = \"-3s\"", `f:4: a.timeout: must be a duration such as "30s", or a number of seconds`},
		{"[a]\n" + good + "active = \"yes\"", "f:4: a.active: "},
		{"[a]\n" + good + "user = 1", "f:4: a.user: "},
		{"[a]\nlock = \"x\"", `f: a.address: say where the server is, such as address = "ftp.example.com"`},
		{"[a]\naddress = \"ftp://h\"\nlock = \"x\"", `f: a.address: "ftp://h" must be a host or host:port`},
		{"[a]\naddress = \"::1:21:\"\nlock = \"x\"", `f: a.address: "::1:21:" must be a host or host:port; an IPv6 address with a port stands in brackets`},
		{"\n[a]\naddress = \"h\"", `f: a.lock: say which lock, such as lock = "phone_lock"`},
		{"[a]\n" + good + "user = \"u\"\npassword = \"x\"\npassword_env = \"Y\"", "f: a: password and password_env are given: only one of them can be right"},
		{"[a]\n" + good + "password = \"x\"", "f: a: a password without a user"},
		{"[a]\n" + good + "shared_password = \"x\"", "f: a: a password without a shared_user"},
		{"a.address = \"h\"\na.lock = \"x\"\na.usr = 1", "f:3: a.usr: unknown key"},
		{"address = \"h\"", "f:1: address: "},
		{"[run]\n" + good, "f: run: no profile can have this name: it means something else on the command line"},
		{"[a]\nlock = \"x\n", "f:2: "},
		{"[a]\n" + good + "x = 1\ny = 1", "f:4: a.x: unknown key\nf:5: a.y: unknown key"},
	} {
		_, err := parseProfiles("f", []byte(c.file))
		var wrong mistakes
		if !errors.As(err, &wrong) || !strings.HasPrefix(strings.Join(wrong, "\n"), c.want) {
			t.Errorf("%q:\n got %q\nwant %s", c.file, err, c.want)
		}
	}
}

func TestDurationsHaveAUnitOrAreSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{"1m30s": 90 * time.Second, "90": 90 * time.Second, "0.5": 500 * time.Millisecond, "0": 0} {
		var d duration
		if err := d.Set(text); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %v, %v", text, time.Duration(d), err)
		}
	}
	for _, text := range []string{"", "-1", "-1s", "x", "1 s", "NaN", "Inf"} {
		var d duration
		if err := d.Set(text); err == nil {
			t.Errorf("%q is %v", text, time.Duration(d))
		}
	}
}

func TestPasswordsComeFromWhereTheProfileSays(t *testing.T) {
	t.Setenv("NETLOCK_PASSWORD", "general")
	t.Setenv("ONE", "from env")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "secret"), "from file\r\nmore\n")
	write(t, filepath.Join(dir, "empty"), "\n")
	write(t, filepath.Join(dir, "windows"), "\ufefffrom Windows\r\n")
	for _, c := range []struct {
		secret     secret
		want, fail string
	}{
		{secret{password: "plain"}, "plain", ""},
		{secret{file: "secret"}, "from file", ""},
		{secret{file: filepath.Join(dir, "secret")}, "from file", ""},
		{secret{file: "windows"}, "from Windows", ""},
		{secret{file: "empty"}, "", "has no password in its first line"},
		{secret{file: "none"}, "", "no such file"},
		{secret{env: "ONE"}, "from env", ""},
		{secret{env: "TWO"}, "", "the environment has no TWO"},
		{secret{command: "echo from command; echo more"}, "from command", ""},
		{secret{command: "exit 3"}, "", "password_command: exit status 3"},
		{secret{}, "general", ""},
	} {
		tt := &target{name: "a", secret: c.secret, dir: dir}
		tt.connect.User = "bob"
		got, err := tt.password(t.Context())
		if got != c.want || (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%+v: %q, %v", c.secret, got, err)
		}
	}
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCertificatesOfAFileAreTrustedForTheHost(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bad.pem"), "nothing")
	p := &profile{Address: "[::1]:21", Lock: "x", CA: "bad.pem"}
	if _, err := p.target("a", dir, false); statusOf(err) != exitProfile {
		t.Errorf("a file without certificates: %v", err)
	}
	p.CA = "none.pem"
	if _, err := p.target("a", dir, false); statusOf(err) != exitProfile {
		t.Errorf("no file: %v", err)
	}
}

func TestProfilesOfAnEditorThatMarksUTF8(t *testing.T) {
	file := filepath.Join(t.TempDir(), "netlock.toml")
	write(t, file, "\ufeff[a]\naddress = \"h\"\nlock = \"x\"\n")
	s := settings{config: file}
	if all, err := s.loadProfiles(); err != nil || len(all.names()) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}
