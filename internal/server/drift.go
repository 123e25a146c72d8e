package server

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/ftplockd/ftplockd/config"
)

// sharedSettings returns a hash for each key that all servers of a cluster need with the same value. builtin: the account is the built-in one.
//
// Everybody who can read etcd can read the hashes. That of the accounts covers the password hashes of the configuration, whose salts have 128
// random bits and are not in etcd, so nobody can compute it for a guessed password. The built-in account has a new salt at each start, and
// its password is left out.
func sharedSettings(c *config.Config, builtin bool) map[string]string {
	accounts := slices.Clone(c.Accounts)
	slices.SortFunc(accounts, func(a, b config.Account) int { return strings.Compare(a.Name, b.Name) })
	var known any = accounts
	if builtin {
		known = []string{"built-in", os.Getenv(config.EnvUser)}
	}
	settings := make(map[string]string)
	for key, value := range map[string]any{
		"account": known, "lock": c.Rules, "root": c.Root, "tls.mode": c.TLS.Mode, "files.mode": c.Files.Mode, "ftp.status_file": c.FTP.StatusFile,
		"locks.readers_share": c.Locks.ReadersShare, "etcd.ttl": c.Etcd.TTL, "etcd.history_days": c.Etcd.HistoryDays,
		"etcd.history_size": c.Etcd.HistorySize, "etcd.shared_state": c.Etcd.SharedState,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			panic(err) // types of the configuration
		}
		hash := sha256.Sum256(append([]byte(key+"\n"), text...))
		settings[key] = base64.RawURLEncoding.EncodeToString(hash[:9])
	}
	return settings
}
