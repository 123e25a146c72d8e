package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ftplockd/ftplockd/config"
)

const goodHash = "$2y$10$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234"

// account is a valid [[account]] for keys to follow.
const account = "[[account]]\nname = \"a\"\npassword = \"" + goodHash + "\"\n"

// etcd and etcdTLS are a valid [etcd] for keys to follow.
const (
	etcd    = "[etcd]\nendpoints = [\"http://127.0.0.1:2379\"]\n"
	etcdTLS = "[etcd]\nendpoints = [\"https://127.0.0.1:2379\"]\n"
)

// lock is a valid [[lock]] for keys to follow.
const lock = "[[lock]]\nmatch = \"/x\"\n"

// topKeys lists the keys at the top of a file.
const topKeys = "there are listen, root, state, xferlog, [ftp], [http], [tls], [files], [locks], [etcd], [[account]], [[lock]], [[hook]]"

func TestParseReportsEachErrorWithItsLine(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		// spelling
		"misspelt key":                      {"[tls]\nmoed = 1", "f:2: tls.moed: unknown key; there are mode, session_reuse, certificate, key, implicit_listen"},
		"misspelt section":                  {"[file]\nmode = \"0644\"\nx = 1", "f:1: file: unknown key; " + topKeys},
		"section in another case":           {"[[Lock]]\nmatch = \"/x\"\n[[Lock]]\nmatch = \"/y\"\nmax_age = \"1m\"", "f:1: Lock: unknown key; " + topKeys},
		"misspelt key beside a wrong value": {"[[hook]]\n[[hook]]\nurl = \"http://a\"\non = [\"acquire\"]\nmach = \"\"\n", "f:1: hook[1].on: missing: one or more of acquire, release, expire, break, publish, discard, unconfirmed, job, login, cluster\nf:1: hook[1].run: missing: the program to run, such as [\"/usr/local/bin/told\"], or a url\nf:5: hook[2].mach: unknown key; there are on, match, run, url, timeout"},
		"key of another section": {lock + "idle_timeout = \"1s\"",
			"f:3: lock[1].idle_timeout: unknown key here; it belongs in [ftp]"},
		"key of a rule at the top": {"max_age = \"1s\"",
			"f:1: max_age: unknown key here; it belongs in [[lock]]"},
		"top key below a section": {"[ftp]\nlisten = [\":21\"]",
			"f:2: ftp.listen: unknown key here; it belongs at the top of the file, before the first [section]"},
		"not a key of the file": {"Warnings = []", "f:1: Warnings: unknown key; " + topKeys},
		"dotted key":            {"ftp.max_age = true", "f:1: ftp.max_age: unknown key here; it belongs in [[lock]]"},

		// TOML
		"syntax error": {"root = \"/x\"\nlisten == 1", "f:2: unexpected character U+003D '=' at start of value"},
		"key twice":    {"root = \"/a\"\nroot = \"/b\"", "f:2: root: key root is already defined"},
		"no UTF-8":     {"root = \"\xff\"", "f:1: invalid UTF-8 character in basic string"},

		// kinds of values
		"number for a duration": {"[ftp]\nidle_timeout = 90",
			`f:2: ftp.idle_timeout: "90": must be a duration in quotes, such as "90s", "10m" or "1h30m", or "0"`},
		"text for a number": {"[ftp]\nmax_connections = \"9\"",
			"f:2: ftp.max_connections: must be a whole number, without quotes"},
		"text for true or false":             {"[ftp]\nactive = \"yes\"", "f:2: ftp.active: must be true or false, without quotes"},
		"number for a text":                  {"root = 1", "f:1: root: must be a string in quotes"},
		"text for a list":                    {"listen = \":21\"", `f:1: listen: must be a list of strings, such as ["one", "two"]`},
		"value for a section":                {"ftp = 1", "f:1: ftp: write it as a section: [ftp]"},
		"one bracket":                        {"[account]\nname = \"a\"", "f:1: account: there may be several: write [[account]], with two brackets, and its keys below"},
		"two brackets":                       {"[[ftp]]\nactive = true", "f:1: ftp: write it as a section: [ftp]"},
		"[[locks]] in place of [[lock]]":     {"[[locks]]\nmatch = \"/x\"", "f:1: locks: write it as a section: [locks]; a rule for names is [[lock]]"},
		"[lock] in place of [[lock]]":        {"[lock]\nmatch = \"/x\"", "f:1: lock: there may be several: write [[lock]], with two brackets, and its keys below; the settings of all locks are [locks]"},
		"pages":                              {"[[http]]\nlisten = \"\"", "f:1: http: write it as a section: [http]"},
		"number in a list":                   {"listen = [\":21\", 21]", "f:1: listen[2]: must be a string in quotes"},
		"list for a text":                    {"root = [\"/x\"]", "f:1: root: must be a string in quotes"},
		"date for a duration":                {"[ftp]\nidle_timeout = 1979-05-27", "f:2: ftp.idle_timeout: must be a string in quotes"},
		"text for a rule":                    {"lock = [\"/x\"]", "f:1: lock[1]: there may be several: write [[lock]], with two brackets, and its keys below"},
		"mode not octal":                     {"[files]\nmode = \"0689\"", `f:2: files.mode: "0689": must be an octal mode in quotes, such as "0644"`},
		"mode with more":                     {"[files]\nmode = \"4755\"", `f:2: files.mode: 04755: must be permission bits, at most 0777`},
		"mode without rights for the server": {"[files]\nmode = \"0444\"", `f:2: files.mode: "0444": the server owns the files and must be able to read and write them`},
		"no ports":                           {"[ftp]\npassive_ports = \"a-b\"", `f:2: ftp.passive_ports: "a-b": must be a range of ports, such as "30000-32767", or ""`},
		"no network":                         {account + "networks = [\"lan\"]", `f:4: account[1].networks[1]: "lan": must be an address or a network, such as "10.0.0.5" or "10.0.0.0/8"`},

		// values of one key
		"negative duration":       {"[ftp]\nidle_timeout = \"-1s\"", `f:2: ftp.idle_timeout: "-1s": must not be negative`},
		"unknown word":            {lock + "release = \"sesion\"", `f:3: lock[1].release: "sesion": must be one of address, user, session, anyone`},
		"reversed ports":          {"[ftp]\npassive_ports = \"9-8\"", `f:2: ftp.passive_ports: "9-8": the range is reversed; did you mean "8-9"?`},
		"no address to listen on": {"listen = []", `f:1: listen: no address to listen on; the default is ["127.0.0.1:2121"]`},
		"listen without port": {"listen = [\n\"127.0.0.1\"]",
			`f:1: listen[1]: "127.0.0.1": must be "host:port", such as "127.0.0.1:2121" or ":2121"`},
		"port above 65535":  {`listen = [":65536"]`, `f:1: listen[1]: ":65536": the port must be a number up to 65535`},
		"listen on no host": {`listen = ["a b:21"]`, `f:1: listen[1]: "a b:21": "a b" is no address and no host name`},
		"listen twice":      {`listen = [":21", ":21"]`, `f:1: listen[2]: ":21": already in listen[1]`},
		"public IPv6": {"[ftp]\npublic_address = \"::1\"",
			`f:2: ftp.public_address: "::1": PASV returns IPv4 addresses only (RFC 959); IPv6 clients use EPSV and need none`},
		"public port":          {"[ftp]\npublic_address = \"a:21\"", `f:2: ftp.public_address: "a:21": must be an IPv4 address or a host name, without a port`},
		"relative status file": {"[ftp]\nstatus_file = \"x\"", `f:2: ftp.status_file: "x": must be an absolute path, such as "/.locks.json", or ""`},

		// values that exclude each other
		"state inside root": {"root = \"/srv\"\nstate = \"/srv/a/../state\"", `f:2: state: state "/srv/a/../state" lies inside root "/srv", where clients would see it`},
		"root with a NUL":   {`root = "/a\u0000b"`, "f:1: root: must not contain a NUL"},
		"root around the default state": {"root = \".\"",
			`f:1: root: state "ftplockd-data/state" lies inside root ".", where clients would see it`},
		"one directory for both": {"state = \"/srv/\"\nroot = \"/srv\"", "f:1: state: root and state must not be the same directory"},
		"no root":                {`root = ""`, "f:1: root: missing: the directory that clients see"},
		"TLS without files": {"[tls]\n\nmode = \"required\"",
			"f:1: tls.certificate: missing: tls.mode \"required\" needs a certificate\n" +
				"f:1: tls.key: missing: tls.mode \"required\" needs the certificate's key"},
		"implicit TLS without TLS": {"[tls]\nimplicit_listen = [\":990\"]", "f:2: tls.implicit_listen: needs tls.mode optional or required"},
		"a certificate without a mode": {"[tls]\ncertificate = \"c\"\nkey = \"k\"",
			`f:2: tls.certificate: is not used without tls.mode: write mode = "required" or "optional"`},
		"resumed sessions without TLS": {"[tls]\nmode = \"off\"\nsession_reuse = \"required\"", "f:3: tls.session_reuse: needs tls.mode optional or required"},
		"implicit TLS on the same port": {"listen = [\":990\"]\n[tls]\nmode = \"optional\"\ncertificate = \"c\"\nkey = \"k\"\nimplicit_listen = [\":990\"]",
			`f:6: tls.implicit_listen[1]: ":990": already in listen[1]`},

		// etcd
		"etcd without members": {"[etcd]\nttl = \"3s\"", `f:1: etcd.endpoints: missing: the members of etcd, such as ["https://10.0.0.1:2379"]`},
		"etcd with directories": {etcd + "[locks]\ndirectories = true",
			"f:4: locks.directories: must be false with [etcd]: a directory on one host excludes no other server; leave it out"},
		"member without a scheme":      {"[etcd]\nendpoints = [\"10.0.0.1:2379\"]", `f:2: etcd.endpoints[1]: "10.0.0.1:2379": must be the URL of a member, such as "https://10.0.0.1:2379"`},
		"member without a port":        {"[etcd]\nendpoints = [\"http://a\"]", `f:2: etcd.endpoints[1]: "http://a": must be the URL of a member, such as "https://10.0.0.1:2379"`},
		"member with a path":           {"[etcd]\nendpoints = [\"http://a:1/x\"]", `f:2: etcd.endpoints[1]: "http://a:1/x": must be the URL of a member, such as "https://10.0.0.1:2379"`},
		"member that is no host":       {"[etcd]\nendpoints = [\"http://a+b:1\"]", `f:2: etcd.endpoints[1]: "http://a+b:1": "a+b" is no address and no host name`},
		"member twice":                 {"[etcd]\nendpoints = [\"http://a:1\", \"https://a:1\"]", `f:2: etcd.endpoints[2]: "https://a:1": already in etcd.endpoints[1]`},
		"prefix inside another's keys": {etcd + `prefix = "/ftplockd/lock/"`, `f:3: etcd.prefix: "/ftplockd/lock/": has the element "lock", so its keys could be those of servers with a shorter prefix; rename it`},
		"prefix without a slash":       {etcd + `prefix = "/x"`, `f:3: etcd.prefix: "/x": must begin and end with "/", such as "/ftplockd/"`},
		"ttl of a part of a second":    {etcd + `ttl = "2500ms"`, `f:3: etcd.ttl: "2.5s": must be whole seconds, at least 2s`},
		"ttl of a second":              {etcd + "ttl = \"1s\"\nrequest_timeout = \"200ms\"", `f:3: etcd.ttl: "1s": must be whole seconds, at least 2s`},
		"slow requests":                {etcd + `ttl = "2s"`, `f:1: etcd.request_timeout: "700ms": must be less than a quarter of etcd.ttl "2s": less than 500ms`},
		"no time for requests":         {etcd + `request_timeout = "0"`, `f:3: etcd.request_timeout: "0s": must be less than a quarter of etcd.ttl "5s": less than 1.25s`},
		"large margin":                 {etcd + `margin = "2500ms"`, `f:3: etcd.margin: "2.5s": must be less than half of etcd.ttl, which is 2.5s`},
		"certificate without key":      {etcdTLS + `certificate = "c"`, `f:1: etcd.key: missing: etcd.certificate needs it`},
		"key without certificate":      {etcdTLS + `key = "k"`, `f:1: etcd.certificate: missing: etcd.key needs it`},
		"certificate without https":    {etcd + `ca = "ca.pem"`, `f:2: etcd.endpoints: no endpoint begins with https://, so the certificates would not be used`},
		"user without password":        {etcd + `user = "u"`, `f:1: etcd.password_file: missing: etcd.user needs it`},
		"shared state inside root": {"root = \"/srv\"\n" + etcd + `shared_state = "/srv/s"`,
			`f:4: etcd.shared_state: "/srv/s" lies inside root "/srv", where clients would see it`},
		"shared state around root": {"root = \"/srv/files\"\n" + etcd + `shared_state = "/srv"`, `f:4: etcd.shared_state: root "/srv/files" lies inside it`},
		"shared state that is not shared": {"root = \"/a\"\nstate = \"/s\"\n" + etcd + `shared_state = "/s/shared"`,
			`f:5: etcd.shared_state: must not be inside state "/s", nor state inside it: state belongs to one server`},

		// accounts
		"no account": {"account = []", "f:1: account: no account: no client could log in; leave account out for the built-in one"},
		"account without keys": {account + "[[account]]",
			"f:4: account[2].name: missing: the name that the client gives with USER\n" +
				`f:4: account[2].password: missing: make one with "ftplockd passwd"`},
		"account twice":      {account + account, `f:5: account[2].name: "a": account 1 has that name already`},
		"account named host": {"[[account]]\nname = \"host\"\npassword = \"" + goodHash + "\"", `f:2: account[1].name: "host": is the owner of locks that programs on the host made; choose another name`},
		"account with a blank at its end": {"[[account]]\nname = \"a \"\npassword = \"" + goodHash + "\"",
			`f:2: account[1].name: "a ": must not begin or end with a space or contain control characters`},
		"account with a line end": {"[[account]]\nname = \"a\\r\\nDELE b\"\npassword = \"" + goodHash + "\"",
			`f:2: account[1].name: "a\r\nDELE b": must not begin or end with a space or contain control characters`},
		"home with a line end": {account + "home = \"/a\\nb\"",
			`f:4: account[1].home: "/a\nb": must be an absolute path in the served tree, such as "/" or "/phone"`},
		"relative home": {account + "home = \"x\"", `f:4: account[1].home: "x": must be an absolute path in the served tree, such as "/" or "/phone"`},
		"network with bits behind the mask": {account + "networks = [\"10.0.0.5/24\"]",
			`f:4: account[1].networks[1]: "10.0.0.5/24": has bits set after the mask; did you mean "10.0.0.0/24"?`},
		"network of mapped addresses": {account + "networks = [\"::ffff:10.0.0.0/104\"]",
			`f:4: account[1].networks[1]: "::ffff:10.0.0.0/104": write it as a network of IPv4`},

		// rules
		"no rule":          {"lock = []", "f:1: lock: no rule: nothing would be a lock; leave lock out for the default rules"},
		"rule for nothing": {"[[lock]]", `f:1: lock[1].match: missing: a glob over the names that are locks, such as "**/*_lock"`},
		"bad glob":         {"[[lock]]\nmatch = \"/[a\"", `f:2: lock[1].match: "/[a": is no glob; a bracket or brace is not closed`},
		"glob without a slash": {"[[lock]]\nmatch = \"*_lock\"",
			`f:2: lock[1].match: "*_lock": matches no name: names begin with "/"; did you mean "**/*_lock"?`},
		"glob that ends with a slash": {"[[lock]]\nmatch = \"/locks/\"",
			`f:2: lock[1].match: "/locks/": matches no name: names have no "//", ".", ".." and no "/" at the end`},
		"glob with two dots at its end": {"[[lock]]\nmatch = \"/a/..\"",
			`f:2: lock[1].match: "/a/..": matches no name: names have no "//", ".", ".." and no "/" at the end`},
		"glob of the tree itself": {"[[lock]]\nmatch = \"/\"", `f:2: lock[1].match: "/": the served tree itself is never a lock`},
		"lock without end": {lock + "max_age = \"0\"\nmax_idle = \"0\"\nrelease = \"session\"",
			`f:5: lock[1].release: no session could release such a lock after the end of its connection: give it a max_age or a max_idle, or on_disconnect = "release"`},
		"a turn of ordinary locks": {lock + "turn = \"1s\"\njob = \"session\"", "f:3: lock[1].turn: needs automatic = true\nf:4: lock[1].job: needs automatic = true"},
		"write_as of no files":     {lock + "write_as = \"account\"", "f:3: lock[1].write_as: needs protects"},
		"an unknown job":           {lock + "job = \"x\"", `f:3: lock[1].job: "x": must be one of address, session`},
		"grace without an effect":  {lock + "grace = \"1s\"", `f:3: lock[1].grace: needs on_disconnect = "release" or automatic = true`},

		"shared with an unknown account": {account + lock + `shared = ["a", "b"]`,
			`f:6: lock[1].shared[2]: "b": no account has that name`},
		"shared with an empty name": {account + lock + `shared = [""]`, `f:6: lock[1].shared[1]: must be the name of an account`},

		// several wrong values
		"a name of the wrong kind is not missing as well": {"[[account]]\nname = 1\npassword = \"" + goodHash + "\"",
			"f:2: account[1].name: must be a string in quotes"},
		"all wrong values, and unknown keys": {"lisen = 1\n[ftp]\nmax_connections = 1.5\nmax_connections_per_address = -1\nactive = 1\n[[account]]\nname = 1\npassword = 2\nhome = \"x\"",
			"f:1: lisen: unknown key; " + topKeys + "\n" +
				"f:3: ftp.max_connections: must be a whole number, without quotes\n" +
				"f:4: ftp.max_connections_per_address: -1: must not be negative\n" +
				"f:5: ftp.active: must be true or false, without quotes\n" +
				"f:7: account[1].name: must be a string in quotes\n" +
				"f:8: account[1].password: must be a string in quotes\n" +
				"f:9: account[1].home: \"x\": must be an absolute path in the served tree, such as \"/\" or \"/phone\""},
		"a number for a text in a later rule": {lock + lock + "max_age = 3", `f:5: lock[2].max_age: "3": must be a duration in quotes, such as "90s", "10m" or "1h30m", or "0"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse([]byte(c.file), "f")
			if err == nil || err.Error() != c.want {
				t.Errorf("\ngot  %v\nwant %v", err, c.want)
			}
			var list config.Errors
			if !errors.As(err, &list) {
				t.Error("not Errors")
			}
		})
	}
}

func TestParseAcceptsUnusualConfigurations(t *testing.T) {
	for name, file := range map[string]string{
		"a lock that its age ends":           lock + "release = \"session\"",
		"a lock that idleness ends":          lock + "max_age = \"0\"\nmax_idle = \"1m\"\nrelease = \"session\"",
		"a lock that the disconnect ends":    lock + "max_age = \"0\"\nmax_idle = \"0\"\non_disconnect = \"release\"\nrelease = \"session\"",
		"a sibling of root with its prefix":  "root = \"/srv/files\"\nstate = \"/srv/files-state\"",
		"port 0 twice":                       `listen = ["127.0.0.1:0", "127.0.0.1:0"]`,
		"shared with the built-in account":   lock + "wait = \"100s\"\nshared = [\"ftp\"]",
		"inline tables":                      `lock = [{match = "/x"}, {match = "/y"}]`,
		"dotted keys":                        `ftp.active = false`,
		"IPv6 addresses":                     `listen = ["[::1]:21", "[fe80::1%eth0]:21"]`,
		"implicit TLS alone":                 "listen = []\ntls = {mode = \"required\", certificate = \"c\", key = \"k\", implicit_listen = [\":990\"]}",
		"a glob over everything":             "[[lock]]\nmatch = \"**\"",
		"a glob with alternatives":           "[[lock]]\nmatch = \"{/a,/b}/*\"",
		"bcrypt of the 2a and 2b kinds":      strings.ReplaceAll(account, "$2y", "$2a") + strings.NewReplacer("$2y", "$2b", `"a"`, `"b"`).Replace(account),
		"a byte-order mark":                  "\xef\xbb\xbflisten = [\":21\"]",
		"a passive port that is only one":    "[ftp]\npassive_ports = \"4000\"",
		"no range of passive ports":          "[ftp]\npassive_ports = \"\"",
		"locks in etcd":                      "[locks]\ndirectories = false\n" + etcdTLS + "ttl = \"2s\"\nrequest_timeout = \"400ms\"\nmargin = \"900ms\"\nca = \"ca\"\ncertificate = \"c\"\nkey = \"k\"",
		"a password on this machine":         etcd + "user = \"u\"\npassword_file = \"p\"\nshared_state = \"/srv/shared\"",
		"a member by IPv6":                   "[etcd]\nendpoints = [\"http://[::1]:2379\"]",
		"a public name with a dot at an end": "[ftp]\npublic_address = \"ftp.example.org.\"",
	} {
		if c, err := config.Parse([]byte(file), "f"); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if len(c.Warnings) > 0 {
			t.Errorf("%s: %v", name, c.Warnings)
		}
	}
}

func TestErrorsContainNoPassword(t *testing.T) {
	const secret = "hunter2hunter2"
	for _, line := range []string{
		`password = "` + secret + `"`, `password = ["` + secret + `"]`, `passwrod = "` + secret + `"`,
		`password = "$argon2id$` + secret + `"`, `password = "` + secret, `password = ` + secret,
		`password = "$2y$10$` + secret + `"`, `password = '` + secret + `' x`,
		"[etcd]\nendpoints = [\"https://root:" + secret + "@10.0.0.1:2379\"]",
		"[[hook]]\non = [\"acquire\"]\nurl = \"example.org/" + secret + "\"",
	} {
		text := "[[account]]\nname = \"a\"\n" + line
		if strings.HasPrefix(line, "[") {
			text = line
		}
		_, err := config.Parse([]byte(text), "f")
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"a private key inside root": {"root = \"/srv\"\n[tls]\nmode = \"optional\"\ncertificate = \"/srv/c\"\nkey = \"/srv/k\"",
			"f:5: tls.key: warning: lies inside root, where clients can read it"},
		"a wait that is too long for old clients": {"[[lock]]\nmatch = \"/x\"\nwait = \"101s\"",
			`f:3: lock[1].wait: warning: "1m41s": old clients give up earlier, Net::FTP after 120 s; other clients may send "SITE WAIT seconds"`},
		"no age, but an idle time": {lock + "max_age = \"0\"",
			`f:3: lock[1].max_age: warning: "0": without max_idle, such a lock still ends 30m after its holder's last sign of life; max_idle = "0" keeps it`},
		"uploads that do not wait": {"[files]\nhang_up = \"0s\"",
			`f:2: files.hang_up: warning: "0s": the server publishes incomplete uploads of killed clients`},
		"an unencrypted password": {"[etcd]\nendpoints = [\"http://a:1\"]\nuser = \"u\"\npassword_file = \"p\"",
			`f:2: etcd.endpoints[1]: warning: "http://a:1": the password crosses the network in the clear`},
		"a port for two things": {`listen = [":30005"]`, "f:1: listen[1]: warning: port 30005 is one of ftp.passive_ports, too"},
	} {
		got, err := config.Parse([]byte(c.file), "f")
		if err != nil || got.Warnings.Error() != c.want {
			t.Errorf("%s: %v\ngot  %v\nwant %v", name, err, got.Warnings, c.want)
		}
	}
}

func TestStateInsideRootThroughALink(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "files/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "files/sub"), filepath.Join(dir, "elsewhere")); err != nil {
		t.Skip(err)
	}
	c := config.Default()
	c.Root, c.State = filepath.Join(dir, "files"), filepath.Join(dir, "elsewhere/state")
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "lies inside root") {
		t.Error(err)
	}
}

func TestLoadWarnsOfAFileInsideRoot(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f.toml")
	for root, warnings := range map[string]int{dir: 1, filepath.Join(dir, "files"): 0} {
		if err := os.WriteFile(file, fmt.Appendf(nil, "root = %q\nstate = \"/state\"", root), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := config.Load(file); err != nil || len(c.Warnings) != warnings {
			t.Error(root, c, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(config.Example())
	f.Add([]byte(account + lock))
	f.Add([]byte("account = [{name=\"a\"}]\nftp.active = false\n[ftp.x]\n[[ftp.x.y]]\n[a.b]\n[[a.b]]"))
	f.Add([]byte("[[a]]\n[a.b]\nc = 1\n[[a.b]]\n\"\" = [[1], {}, 1.5, 1979-05-27]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse(data, "f")
		var list config.Errors
		switch {
		case err == nil && c.Validate() != nil:
			t.Errorf("accepted, then refused: %v", c.Validate())
		case err != nil && !errors.As(err, &list):
			t.Errorf("%T", err)
		}
		for _, e := range list {
			if e.File != "f" || e.Message == "" || e.Line > strings.Count(string(data), "\n")+1 {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestParseAddsLinesToErrorsOfChecks(t *testing.T) {
	check := func(c *config.Config) config.Errors {
		return config.Errors{{Key: "lock[1].protects[2]", Message: "no"}}
	}
	_, err := config.Parse([]byte("[[lock]]\nmatch = \"/l/*\"\nprotects = [\n  \"/a\",\n  \"/b\",\n]\n"), "f", check)
	if err == nil || err.Error() != "f:3: lock[1].protects[2]: no" {
		t.Error(err)
	}
	// A value that could not be read has its default, about which there is no error.
	_, err = config.Parse([]byte("[[lock]]\nmatch = \"/l/*\"\nprotects = 3\n"), "f", check)
	if err == nil || strings.Contains(err.Error(), "protects[2]") {
		t.Error(err)
	}
}

func TestLinesOfKeysInEveryNotation(t *testing.T) {
	for file, line := range map[string]int{
		"root = \"\"\"\n[lock]\nx = 1\"\"\"\nftp.public_address = \"::1\"": 4,
		"\"ftp\".'public_address' = \"::1\"":                               1,
		"[ ftp ]\n\n\tpublic_address=\"::1\" # [x]":                        3,
		"account = [\n{name = \"a\"},\n{name = \"host\"}]":                 1, // the line of the key outside of inline tables
		"[lock]\n[[ftp]]\n[tls]\nmode = {x = \"required\", y = 1}":         4,
		"ftp = {active = true, public_address = \"::1\"}":                  1,
		"[[lock]]\nmatch = \"/a\"\n[[account]]\n[[lock]]\nmatch = \"[\"\n": 5,
	} {
		var errs config.Errors
		if _, err := config.Parse([]byte(file), "f"); !errors.As(err, &errs) || errs[len(errs)-1].Line != line {
			t.Errorf("%q: %v, want line %d", file, err, line)
		}
	}
}
