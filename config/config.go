package config

import (
	"slices"
	"strings"
	"time"
)

// Config is the whole configuration. The toml tag of a field is its key in the file. A field with the tag restart takes effect only when the
// server starts, see [Config.KeepRestartKeys]. An enum tag lists the values of a field.
//
// A Config in use is never changed: a reload makes another one.
type Config struct {
	// Listen has the addresses to listen on, each "host:port"; without a host: all.
	Listen []string `toml:"listen" restart:"yes"`
	// Root is the directory that clients see as "/", absolute or relative to the working directory.
	Root string `toml:"root" restart:"yes"`
	// State is the directory of the journal and the control socket. It is not inside Root, nor Root inside it.
	State string `toml:"state" restart:"yes"`
	// Xferlog is a file that gets a line for each transfer, in wu-ftpd's format. "": none.
	Xferlog string `toml:"xferlog" restart:"yes"`

	FTP   FTP   `toml:"ftp"`
	HTTP  HTTP  `toml:"http"`
	TLS   TLS   `toml:"tls"`
	Files Files `toml:"files"`
	Locks Locks `toml:"locks"`
	Etcd  Etcd  `toml:"etcd"`

	// Accounts may log in. Without any there is that of [BuiltinAccount].
	Accounts []Account `toml:"account"`
	// Rules define which names are locks; the first one whose Match fits a name applies. A file without any has those of [Default].
	Rules []Rule `toml:"lock"`
	// Hooks are programs and web servers that the server informs of events.
	Hooks []Hook `toml:"hook"`

	// Warnings has the settings that [Parse] accepts but that are probably mistakes. It is no key.
	Warnings Errors `toml:"-"`
}

// FTP has the settings of connections and transfers.
type FTP struct {
	// PassivePorts are the ports of passive data connections; none: the kernel chooses.
	PassivePorts PortRange `toml:"passive_ports"`
	// PublicAddress is the IPv4 address, or a name that has one, in the reply to PASV; "": the one that the client connected to.
	PublicAddress string `toml:"public_address"`
	// Active allows active data connections (PORT, EPRT).
	Active bool `toml:"active"`
	// IdleTimeout ends a session that sends no command for this time, unless it has a lock. 0: never.
	IdleTimeout Duration `toml:"idle_timeout"`
	// DataTimeout aborts a transfer that moves no byte for this time, or whose data connection does not come. 0: never. A reload does not change the
	// wait for an active data connection.
	DataTimeout Duration `toml:"data_timeout"`
	// DataMinRate aborts a download that moves fewer bytes per second over a minute. 0: never.
	DataMinRate int `toml:"data_min_rate"`
	// UserTimeout closes a connection whose peer acknowledges nothing for this time. 0: the limit of the system, many minutes.
	UserTimeout Duration `toml:"user_timeout"`
	// LoginTimeout ends a connection that has not logged in after this time. 0: never.
	LoginTimeout Duration `toml:"login_timeout"`
	// MaxConnections limits the control connections, and a quarter of it those without a login. The limit of open files of the process
	// may allow fewer. 0: no limit.
	MaxConnections int `toml:"max_connections"`
	// MaxConnectionsPerAddress limits those of one client address (IPv6: one /64), and 100 those without a login. 0: no limit.
	MaxConnectionsPerAddress int `toml:"max_connections_per_address"`
	// StatusFile is the path, in the served tree, of the read-only list of locks. "": none.
	StatusFile string `toml:"status_file"`
}

// The values of TLS.Mode.
const (
	TLSOff      = "off"      // AUTH TLS is refused
	TLSOptional = "optional" // the client chooses
	TLSRequired = "required" // no login and no transfer without
)

// The values of TLS.SessionReuse.
const (
	ReuseOff      = "off"      // a data connection may have a TLS session of its own
	ReuseRequired = "required" // it must resume that of the control connection
)

// TLS has the settings of encryption.
type TLS struct {
	Mode string `toml:"mode" enum:"off,optional,required" restart:"yes"`
	// SessionReuse requires that data connections resume the TLS session of their control connection.
	SessionReuse string `toml:"session_reuse" enum:"off,required" restart:"yes"`
	// Certificate and Key are PEM files. A reload reads them again.
	Certificate string `toml:"certificate"`
	Key         string `toml:"key"`
	// ImplicitListen has the addresses of implicit TLS, without AUTH TLS.
	ImplicitListen []string `toml:"implicit_listen" restart:"yes"`
}

// HTTP has the settings of the page.
type HTTP struct {
	// Listen is the address, "host:port", of the page, /metrics, /healthz and /readyz. "": none.
	Listen string `toml:"listen" restart:"yes"`
}

// Hook is a program or a web server that the server informs of events.
type Hook struct {
	// On are the kinds of events.
	On []string `toml:"on"`
	// Match is a doublestar glob over the lock or the file. "": all.
	Match string `toml:"match"`
	// Run is a program, an absolute path, and its arguments. It reads the event as JSON from its standard input.
	Run []string `toml:"run"`
	// URL gets the event by POST, instead of Run.
	URL string `toml:"url"`
	// Timeout ends a run that takes longer.
	Timeout Duration `toml:"timeout"`
}

// HookEvents are the values of Hook.On.
var HookEvents = []string{"acquire", "release", "expire", "break", "publish", "discard", "unconfirmed", "job", "login", "cluster"}

// DefaultHook returns the values of a [[hook]] without keys.
func DefaultHook() Hook { return Hook{Timeout: Duration{30 * time.Second}} }

// Files has the settings of uploads.
type Files struct {
	// Mode is that of new files, permission bits only. An existing file keeps its mode.
	Mode Mode `toml:"mode"`
	// HangUp is how long an upload waits at least, after the end of its data connection, for the end of the control connection, by which the
	// server recognises a killed client. Long and empty uploads wait longer, up to 50 ms. 0: no upload waits.
	HangUp Duration `toml:"hang_up"`
	// Durable syncs an upload to the disk before its 226.
	Durable bool `toml:"durable"`
}

// Locks has the settings of all locks.
type Locks struct {
	// Directories makes each lock a directory on disk, too. With Etcd its default is false.
	Directories bool `toml:"directories" restart:"yes"`
	// Durable syncs a grant to the disk before its 257.
	Durable bool `toml:"durable" restart:"yes"`
	// ReadersShare lets read-only accounts hold a lock together.
	ReadersShare bool `toml:"readers_share"`
	// LeftoverMaxAge is how long the content of a lock that ended other than by RMD is kept. 0: for ever.
	LeftoverMaxAge Duration `toml:"leftover_max_age"`
	// HistoryDays is how long the journal's history is kept. 0: for ever.
	HistoryDays int `toml:"history_days" restart:"yes"`
	// HistorySize limits the history; its oldest part is removed. 0: no limit.
	HistorySize Size `toml:"history_size" restart:"yes"`
}

// Etcd is the etcd cluster that contains the locks of several servers: one of them serves, the others stand by. Without Endpoints there is none,
// and the server has a journal.
type Etcd struct {
	// Endpoints are the URLs of the members.
	Endpoints []string `toml:"endpoints" restart:"yes"`
	// Prefix is the first part of all keys. Servers with one prefix stand by for each other.
	Prefix string `toml:"prefix" restart:"yes"`
	// TTL is the time after which another server replaces one that died, in whole seconds.
	TTL Duration `toml:"ttl" restart:"yes"`
	// Margin is how long before the end of its lease, by its own clock, a server stops granting. 0: a fifth of TTL.
	Margin Duration `toml:"margin" restart:"yes"`
	// RequestTimeout is the time after which the outcome of a change is unknown.
	RequestTimeout Duration `toml:"request_timeout" restart:"yes"`
	// Certificate and Key are those of the server as a client of etcd, CA is the authority of etcd's certificates; PEM files.
	Certificate string `toml:"certificate" restart:"yes"`
	Key         string `toml:"key" restart:"yes"`
	CA          string `toml:"ca" restart:"yes"`
	// User is the server's account in etcd, PasswordFile has its password.
	User         string `toml:"user" restart:"yes"`
	PasswordFile string `toml:"password_file" restart:"yes"`
	// HistoryDays is how long the history of locks is kept in etcd. 0: for ever.
	HistoryDays int `toml:"history_days" restart:"yes"`
	// HistorySize limits it; its oldest part is removed. 0: no limit.
	HistorySize Size `toml:"history_size" restart:"yes"`
	// SharedState is a directory that all servers share, beside the served tree. "": each server has its own tree.
	SharedState string `toml:"shared_state" restart:"yes"`
}

// On reports whether locks are kept in etcd.
func (e *Etcd) On() bool { return len(e.Endpoints) > 0 }

// TLS reports whether any endpoint is reached by TLS.
func (e *Etcd) TLS() bool {
	return slices.ContainsFunc(e.Endpoints, func(endpoint string) bool { return strings.HasPrefix(endpoint, "https://") })
}

// The values of Account.Access.
const (
	AccessReadWrite = "read-write"
	AccessReadOnly  = "read-only"
	AccessWriteOnly = "write-only"
)

// Account is an account of clients.
type Account struct {
	Name string `toml:"name"`
	// Password is a hash in the form that [HashPassword] makes, or one of bcrypt.
	Password string `toml:"password"`
	// Home is the directory in the served tree that the account sees as "/".
	Home string `toml:"home"`
	// Start is the directory after login, as the account sees it.
	Start string `toml:"start"`
	// Access is its access to files. Each account may take locks.
	Access string `toml:"access" enum:"read-write,read-only,write-only"`
	// Networks are those that it may log in from; none: all.
	Networks []Network `toml:"networks"`
	// Chmod lets it change the modes of files (SITE CHMOD), if it may write.
	Chmod bool `toml:"chmod"`
	// Admin lets it break locks.
	Admin bool `toml:"admin"`
	// MaxLocks limits the locks that it may hold. 0: no limit.
	MaxLocks int `toml:"max_locks"`
}

// The values of Rule.OnDisconnect, Release, WriteAs, Members and Job.
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

// Rule defines the locks whose names match a glob.
type Rule struct {
	// Match is a doublestar glob over the whole name, which begins with "/".
	Match string `toml:"match"`
	// MaxAge ends a lock this time after its grant. 0: never.
	MaxAge Duration `toml:"max_age"`
	// MaxIdle ends a lock this time after the last sign of life of its holder. 0: off.
	MaxIdle Duration `toml:"max_idle"`
	// OnDisconnect is the effect of the end of the acquiring connection.
	OnDisconnect string `toml:"on_disconnect" enum:"keep,release"`
	// Grace is the time from that end to the end of the lock, with DisconnectRelease. 0: none.
	Grace Duration `toml:"grace"`
	// LockDelay refuses the lock to all clients for this time after it was taken away. 0: off.
	LockDelay Duration `toml:"lock_delay"`
	// Release selects the sessions that may release it.
	Release string `toml:"release" enum:"address,user,session,anyone"`
	// Wait is how long MKD of a held lock waits, without SITE WAIT. 0: not at all.
	Wait Duration `toml:"wait"`
	// Shared has the accounts that may hold it together; none: the read-only ones, if Locks.ReadersShare is set.
	Shared []string `toml:"shared"`
	// Limit limits the locks directly below one directory. 0: no limit.
	Limit int `toml:"limit"`
	// Protects has the paths that only the holder may change; $1, $2 stand for the wildcards of Match.
	Protects []string `toml:"protects"`
	// WriteAs selects the sessions that may change these files after the acquiring session has ended.
	WriteAs string `toml:"write_as" enum:"holder,account"`
	// Members selects the sessions that may take locks below it while it is held.
	Members string `toml:"members" enum:"holder,anyone"`
	// AllowCwd lets other sessions CWD into the lock directory.
	AllowCwd bool `toml:"allow_cwd"`
	// Automatic makes the first change of a job acquire the lock, for programs that take no lock.
	Automatic Automatic `toml:"automatic"`
	// Turn is how long the first read of a job holds an automatic lock. 0: not at all.
	Turn Duration `toml:"turn"`
	// Job selects the sessions that are one job.
	Job string `toml:"job" enum:"address,session"`
}

// Default returns the configuration of a server without a file. It is valid, and has no account: see [BuiltinAccount].
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

// DefaultAccount returns the values of an [[account]] that has only a name and a password.
func DefaultAccount(name, hash string) Account {
	return Account{Name: name, Password: hash, Home: "/", Start: "/", Access: AccessReadWrite, Chmod: true, MaxLocks: 1000}
}

// DefaultRule returns the values of a [[lock]] that has only a match.
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

// automaticDefaults sets the defaults of an automatic rule. given has the keys of the rule in the file.
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
