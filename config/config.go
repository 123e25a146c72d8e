package config

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// Config is the whole configuration. The toml tag of each field is its key in
// the file; a field tagged restart takes effect only when the server starts, see
// [Config.KeepRestartKeys]; an enum tag lists all that a field may be.
//
// A Config is not changed once it is in use: a reload makes another one.
type Config struct {
	// Listen has the addresses to listen on, each "host:port"; without a host: all.
	Listen []string `toml:"listen" restart:"yes"`
	// Root is the directory that clients see as "/". Relative to the directory the server starts in.
	Root string `toml:"root" restart:"yes"`
	// State is the directory of the journal, the records and the control socket. Neither of Root and State
	// lies inside the other. Relative to the directory the server starts in.
	State string `toml:"state" restart:"yes"`
	// Xferlog is a file to which a line is added for each transfer, in wu-ftpd's format. "": none.
	Xferlog string `toml:"xferlog" restart:"yes"`

	FTP   FTP   `toml:"ftp"`
	HTTP  HTTP  `toml:"http"`
	TLS   TLS   `toml:"tls"`
	Files Files `toml:"files"`
	Locks Locks `toml:"locks"`
	Etcd  Etcd  `toml:"etcd"`

	// Accounts are those who may log in. None at all stands for the one of [BuiltinAccount].
	Accounts []Account `toml:"account"`
	// Rules say which names are locks; the first whose Match fits decides. A file without any has those of [Default].
	Rules []Rule `toml:"lock"`
	// Hooks are programs and web servers that are told what happens.
	Hooks []Hook `toml:"hook"`

	// Warnings is what [Parse] took though it is hardly meant so. It is no key.
	Warnings Errors `toml:"-"`
}

// FTP is how the server speaks with its clients.
type FTP struct {
	// PassivePorts are the ports for passive data connections; none: whatever the kernel gives.
	PassivePorts PortRange `toml:"passive_ports"`
	// PublicAddress is the IPv4 address, or the name of one, told to passive clients; "": the one they connected to.
	PublicAddress string `toml:"public_address"`
	// Active allows active data connections (PORT, EPRT).
	Active bool `toml:"active"`
	// IdleTimeout ends a session that sends no command for so long, unless it speaks for a lock. 0: never.
	IdleTimeout Duration `toml:"idle_timeout"`
	// DataTimeout gives up a transfer that moves no byte for so long, or whose data connection does not come. 0: never.
	DataTimeout Duration `toml:"data_timeout"`
	// DataMinRate gives up a download that moves fewer bytes a second, over one minute. 0: never.
	DataMinRate int `toml:"data_min_rate"`
	// UserTimeout gives up a machine that acknowledges nothing for so long. 0: the system's own, many minutes.
	UserTimeout Duration `toml:"user_timeout"`
	// LoginTimeout ends a connection that has not logged in after so long, whatever it says. 0: never.
	LoginTimeout Duration `toml:"login_timeout"`
	// MaxConnections bounds the control connections, and a quarter of it those that are not logged in. 0: no limit.
	MaxConnections int `toml:"max_connections"`
	// MaxConnectionsPerAddress bounds those of one client address (of IPv6: one /64), of which 100 may be not logged in. 0:
	// no limit.
	MaxConnectionsPerAddress int `toml:"max_connections_per_address"`
	// StatusFile is where in the served tree the read-only list of locks shows, an absolute path. "": nowhere.
	StatusFile string `toml:"status_file"`
}

// What TLS.Mode may be.
const (
	TLSOff      = "off"      // AUTH TLS is refused
	TLSOptional = "optional" // as the client likes
	TLSRequired = "required" // no login and no data without
)

// What TLS.SessionReuse may be.
const (
	ReuseOff      = "off"      // a data connection may have a TLS session of its own
	ReuseRequired = "required" // it must resume that of the control connection
)

// TLS is whether connections are encrypted.
type TLS struct {
	Mode string `toml:"mode" enum:"off,optional,required" restart:"yes"`
	// SessionReuse ties data connections to the TLS session of their control connection.
	SessionReuse string `toml:"session_reuse" enum:"off,required" restart:"yes"`
	// Certificate and Key are PEM files. A reload reads them again.
	Certificate string `toml:"certificate"`
	Key         string `toml:"key"`
	// ImplicitListen has addresses where TLS starts with the first byte, without AUTH.
	ImplicitListen []string `toml:"implicit_listen" restart:"yes"`
}

// HTTP is where the server shows itself to browsers and to programs that watch it.
type HTTP struct {
	// Listen is the address, "host:port", of the page, /metrics, /healthz and /readyz. "": nowhere.
	Listen string `toml:"listen" restart:"yes"`
}

// Hook says who is told of what happens.
type Hook struct {
	// On are the kinds of events.
	On []string `toml:"on"`
	// Match is a doublestar glob over the lock or the file. "": all.
	Match string `toml:"match"`
	// Run is a program, an absolute path, and its arguments. It reads the event as JSON from its standard input.
	Run []string `toml:"run"`
	// URL is where the event is sent by POST instead.
	URL string `toml:"url"`
	// Timeout ends a run that takes longer.
	Timeout Duration `toml:"timeout"`
}

// HookEvents are what Hook.On may have.
var HookEvents = []string{"acquire", "release", "expire", "break", "publish", "discard", "unconfirmed", "job", "login", "cluster"}

// DefaultHook returns what a [[hook]] is of which nothing is given.
func DefaultHook() Hook { return Hook{Timeout: Duration{30 * time.Second}} }

// Files is what becomes of uploads.
type Files struct {
	// Mode is that of new files, permission bits only. An existing file keeps its own.
	Mode Mode `toml:"mode"`
	// HangUp is how long after the end of its data connection an upload waits for the end of the control connection, which tells
	// a client that was killed from one that has finished. 0: not at all, as other servers do.
	HangUp Duration `toml:"hang_up"`
	// Durable syncs an upload to the disk before its 226.
	Durable bool `toml:"durable"`
}

// Locks is what holds for all locks.
type Locks struct {
	// Directories makes each lock a directory on disk, too. With Etcd it is false where a file does not say.
	Directories bool `toml:"directories" restart:"yes"`
	// Durable syncs a grant to the disk before the client hears of it.
	Durable bool `toml:"durable" restart:"yes"`
	// ReadersShare lets read-only accounts hold a lock together.
	ReadersShare bool `toml:"readers_share"`
	// LeftoverMaxAge is how long what was left in a lock is kept that ended otherwise than by RMD. 0: for ever.
	LeftoverMaxAge Duration `toml:"leftover_max_age"`
	// HistoryDays is how long the journal's history is kept. 0: for ever.
	HistoryDays int `toml:"history_days" restart:"yes"`
	// HistorySize bounds the history; the oldest part of more goes. 0: any size.
	HistorySize Size `toml:"history_size" restart:"yes"`
}

// Etcd is the etcd cluster in which several servers keep their locks together: one of them serves, the others stand by. Without
// Endpoints there is none, and a server keeps a journal of its own.
type Etcd struct {
	// Endpoints are the URLs of the members.
	Endpoints []string `toml:"endpoints" restart:"yes"`
	// Prefix is what all keys begin with. Servers with one prefix stand by for each other.
	Prefix string `toml:"prefix" restart:"yes"`
	// TTL is how long a server that has died keeps the others waiting. Whole seconds.
	TTL Duration `toml:"ttl" restart:"yes"`
	// Margin is how long before its lease ends by its own clock a server stops to grant. 0: a fifth of TTL.
	Margin Duration `toml:"margin" restart:"yes"`
	// RequestTimeout is how long a change may take until its outcome is unknown.
	RequestTimeout Duration `toml:"request_timeout" restart:"yes"`
	// Certificate and Key are what the server shows to etcd, CA is whom it trusts; PEM files.
	Certificate string `toml:"certificate" restart:"yes"`
	Key         string `toml:"key" restart:"yes"`
	CA          string `toml:"ca" restart:"yes"`
	// User is the server's account in etcd, PasswordFile has its password.
	User         string `toml:"user" restart:"yes"`
	PasswordFile string `toml:"password_file" restart:"yes"`
	// HistoryDays is how long the history of locks is kept in etcd. 0: for ever.
	HistoryDays int `toml:"history_days" restart:"yes"`
	// HistorySize bounds it; the oldest part of more goes. 0: any size.
	HistorySize Size `toml:"history_size" restart:"yes"`
	// SharedState is a directory that all servers see, beside the served tree that they share. "": each has a tree of its own.
	SharedState string `toml:"shared_state" restart:"yes"`
}

// On reports whether locks are kept in etcd.
func (e *Etcd) On() bool { return len(e.Endpoints) > 0 }

// TLS reports whether any endpoint is reached by TLS.
func (e *Etcd) TLS() bool {
	return slices.ContainsFunc(e.Endpoints, func(endpoint string) bool { return strings.HasPrefix(endpoint, "https://") })
}

// What Account.Access may be.
const (
	AccessReadWrite = "read-write"
	AccessReadOnly  = "read-only"
	AccessWriteOnly = "write-only"
)

// Account is one who may log in.
type Account struct {
	Name string `toml:"name"`
	// Password is a hash in the form that [HashPassword] makes, or one of bcrypt.
	Password string `toml:"password"`
	// Home is the directory in the served tree that the account sees as "/".
	Home string `toml:"home"`
	// Start is where it is after login, a path as the account sees it.
	Start string `toml:"start"`
	// Access is what it may do with files. Locks it may take in any case.
	Access string `toml:"access" enum:"read-write,read-only,write-only"`
	// Networks are where it may come from; none: anywhere.
	Networks []Network `toml:"networks"`
	// Chmod lets it change the modes of files (SITE CHMOD), if it may change files at all.
	Chmod bool `toml:"chmod"`
	// Admin lets it break locks.
	Admin bool `toml:"admin"`
	// MaxLocks is how many locks it may hold at a time. 0: any number.
	MaxLocks int `toml:"max_locks"`
}

// What Rule.OnDisconnect, Release, WriteAs and Members may be.
const (
	DisconnectKeep    = "keep"
	DisconnectRelease = "release"

	ReleaseAddress = "address"
	ReleaseUser    = "user"
	ReleaseSession = "session"
	ReleaseAnyone  = "anyone"

	WriteAsHolder  = "holder"
	WriteAsAccount = "account"

	MembersHolder = "holder"
	MembersAnyone = "anyone"

	JobAddress = "address"
	JobSession = "session"
)

// Rule says which names are locks and how they live.
type Rule struct {
	// Match is a doublestar glob over the whole name, which begins with "/".
	Match string `toml:"match"`
	// MaxAge ends a lock so long after it was acquired. 0: never.
	MaxAge Duration `toml:"max_age"`
	// MaxIdle ends a lock so long after its holder's last sign of life. 0: off.
	MaxIdle Duration `toml:"max_idle"`
	// OnDisconnect is what the end of the acquiring connection does.
	OnDisconnect string `toml:"on_disconnect" enum:"keep,release"`
	// Grace puts that off for so long, only with DisconnectRelease. 0: at once.
	Grace Duration `toml:"grace"`
	// LockDelay keeps everybody from a lock for so long after it was taken away. 0: off.
	LockDelay Duration `toml:"lock_delay"`
	// Release is who may give it back.
	Release string `toml:"release" enum:"address,user,session,anyone"`
	// Wait is how long MKD on a held lock waits for it, SITE WAIT of the session aside. 0: not at all.
	Wait Duration `toml:"wait"`
	// Shared names the accounts that may hold it together; none: the read-only ones, if Locks.ReadersShare is set.
	Shared []string `toml:"shared"`
	// Limit is how many locks there may be directly below one directory. 0: any number.
	Limit int `toml:"limit"`
	// Protects has the paths that only the holder may change; $1, $2 stand for the wildcards of Match.
	Protects []string `toml:"protects"`
	// WriteAs is which sessions may change those by the hold of a session that has ended.
	WriteAs string `toml:"write_as" enum:"holder,account"`
	// Members is who may take locks below it while it is held.
	Members string `toml:"members" enum:"holder,anyone"`
	// AllowCwd lets others than its holder change into the lock directory, and read there.
	AllowCwd bool `toml:"allow_cwd"`
	// Automatic has the first change of a job acquire the lock, for programs that do not know it.
	Automatic Automatic `toml:"automatic"`
	// Turn is how long the first look of a job holds an automatic lock. 0: it does not.
	Turn Duration `toml:"turn"`
	// Job is which sessions are one job.
	Job string `toml:"job" enum:"address,session"`
}

// Default returns the configuration of a server that was given no file. It is
// valid. It has no account: see [BuiltinAccount].
func Default() *Config {
	return &Config{
		Listen: []string{"127.0.0.1:2121"},
		Root:   "ftplockd-data/files",
		State:  "ftplockd-data/state",
		FTP: FTP{
			PassivePorts:   PortRange{30000, 32767},
			Active:         true,
			IdleTimeout:    Duration{5 * time.Minute},
			DataTimeout:    Duration{time.Minute},
			DataMinRate:    100,
			UserTimeout:    Duration{30 * time.Second},
			LoginTimeout:   Duration{30 * time.Second},
			MaxConnections: 16000, MaxConnectionsPerAddress: 1000,
			StatusFile: "/.locks.json",
		},
		TLS: TLS{Mode: TLSOff, SessionReuse: ReuseOff},
		Files: Files{
			Mode:    Mode{0o644},
			HangUp:  Duration{2 * time.Millisecond},
			Durable: true,
		},
		Locks: Locks{Directories: true, Durable: true, ReadersShare: true, LeftoverMaxAge: Duration{7 * 24 * time.Hour}, HistoryDays: 90, HistorySize: Size{1 << 30}},
		Etcd: Etcd{
			Prefix: "/ftplockd/", TTL: Duration{5 * time.Second}, RequestTimeout: Duration{700 * time.Millisecond},
			HistoryDays: 90, HistorySize: Size{256 << 20},
		},
		Rules: []Rule{DefaultRule("/locks/**"), DefaultRule("**/*_lock"), DefaultRule("**/*.lock"), DefaultRule("**/.*-lock")},
	}
}

// DefaultAccount returns what an [[account]] is of which only the name and the password are given.
func DefaultAccount(name, hash string) Account {
	return Account{Name: name, Password: hash, Home: "/", Start: "/", Access: AccessReadWrite, Chmod: true, MaxLocks: 1000}
}

// DefaultRule returns what a [[lock]] is of which only the match is given.
func DefaultRule(match string) Rule {
	return Rule{
		Match:        match,
		MaxAge:       Duration{24 * time.Hour},
		MaxIdle:      Duration{30 * time.Minute},
		OnDisconnect: DisconnectKeep,
		Release:      ReleaseAddress,
		WriteAs:      WriteAsHolder,
		Members:      MembersHolder,
		AllowCwd:     true,
		Automatic:    AutomaticOff,
		Turn:         Duration{2 * time.Second},
		Job:          JobAddress,
	}
}

// automaticDefaults gives an automatic rule the limits that suit programs, where the file sets none.
func (r *Rule) automaticDefaults(given table) {
	for key, d := range map[string]struct {
		to    *Duration
		value time.Duration
	}{
		"wait": {&r.Wait, 15 * time.Second}, "grace": {&r.Grace, 3 * time.Second},
		"max_idle": {&r.MaxIdle, 2 * time.Minute}, "max_age": {&r.MaxAge, time.Hour},
	} {
		if !given.has(key) {
			d.to.Duration = d.value
		}
	}
}

// Reads reports whether the account may read files.
func (a Account) Reads() bool { return a.Access != AccessWriteOnly }

// Writes reports whether the account may write files.
func (a Account) Writes() bool { return a.Access != AccessReadOnly }

// KeepRestartKeys gives the keys that a reload cannot change the values of the running configuration. It returns those
// that would have changed, in the order of the file.
//
// They are listen, root, state, tls.mode, tls.implicit_listen, locks.directories
// and locks.durable: all that is read once, when listeners and stores are made.
func (c *Config) KeepRestartKeys(running *Config) (keys []string) {
	old := make(map[string]reflect.Value)
	walk(running, func(f field) { old[f.key] = f.value })
	walk(c, func(f field) {
		if f.tag.Get("restart") != "" && !reflect.DeepEqual(old[f.key].Interface(), f.value.Interface()) {
			keys = append(keys, f.key)
			f.value.Set(old[f.key])
		}
	})
	return keys
}
