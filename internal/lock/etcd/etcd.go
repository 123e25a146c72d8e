// Package etcd is the [lock.Log] of several servers that stand by for each other. The holds are keys in etcd. One server at a time, the
// active one, changes them.
//
// Its types: a [Cluster] is a server's connection to etcd, which [Open] makes from [Options]. [Cluster.Campaign] waits until the server is
// the active one, and returns the [Log] of its term. [Status] lists the members of etcd and the servers.
//
// Guarantees: when Wait returns nil, the record is on the disks of a majority of the members of etcd. A server that has been replaced
// changes nothing, even before it notices: each batch of records is one transaction, on the condition that the server's election key is at
// the fence, which is a ModRevision. Tokens come from blocks that are reserved in etcd before use, so they grow over the terms of all
// servers. After a transaction without an answer the fence moves, so that the transaction cannot be applied after a later one.
//
// Caveats: [Log.Valid] compares the boot clock with the end of the lease, without a request. It does not stop a process that freezes
// between that check and its next step. The times of holds are on a [timeline], which a standby continues with the beats that it saw; a
// server that saw none uses the wall clock. A crash may lose the last second of the history, except the grants of locks that are still
// held: the next [Log.Load] appends these. A term writes a key each second, so etcd must be compacted by its own settings.
//
// If etcd is slow for the active server, that server hands over to one that has an election key. A standby loses its key if etcd is slow for
// it, too. It gets another key after etcd has answered each of its polls in time for a ttl. So servers rarely hand over to each other again and
// again: only if the round trips of all vary around the request timeout.
//
// Start reading at [Cluster.Campaign], then log.go, writer.go and term.go. Package record has the form of holds and of the history; all other
// values are JSON or text.
package etcd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Options are the settings of a Cluster. Endpoints, Prefix, TTL, Margin, RequestTimeout and Clock are required.
type Options struct {
	Endpoints      []string      // of the members of etcd: "https://10.0.0.1:2379"
	Prefix         string        // of all keys. It ends with a slash; package config refuses elements of these keys in it
	TTL            time.Duration // whole seconds. Another server takes over this long after the last renewal of the lease
	Margin         time.Duration // the server counts the lease as over this long before its end
	RequestTimeout time.Duration // for the answer of one member of etcd
	TLS            *tls.Config   // nil: none
	User, Password string
	Clock          lock.Clock
	BootID         string        // of this boot of the machine; "": the wall clock maps times of earlier starts
	Log            *slog.Logger  // nil: silent
	HistoryAge     time.Duration // Sweep removes older entries of the history; 0: none
	HistorySize    int64         // Sweep removes the oldest entries above this number of bytes; 0: none
	After          lock.Token    // all tokens are larger than this one
	Self           Server
	// CanServe returns why this server could not serve now; nil: it could. Then it does not stand by. It must not wait. A nil CanServe: it always could.
	CanServe func() error
}

// Server is the value of an election key, which the other servers read.
type Server struct {
	Name      string    `json:"name"`
	Addresses []string  `json:"addresses,omitempty"` // where it serves FTP when it is the active one
	Version   string    `json:"version,omitempty"`
	Since     time.Time `json:"since,omitzero"`      // when it started
	NotReady  string    `json:"not_ready,omitempty"` // why it could not serve, so it does not stand by
	// Settings has a hash for each key of the configuration that all servers need with the same value. It must not reveal a password.
	Settings map[string]string `json:"settings,omitempty"`
}

// Differs returns the keys whose values differ between two servers, sorted; none if one of them is of a version without Settings.
func (s Server) Differs(o Server) (keys []string) {
	if s.Settings == nil || o.Settings == nil {
		return nil
	}
	for key, hash := range s.Settings {
		if found, ok := o.Settings[key]; ok && found != hash { // another version has other keys
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// String returns the name and the addresses.
func (s Server) String() string {
	if len(s.Addresses) == 0 {
		return s.Name
	}
	return s.Name + " (" + strings.Join(s.Addresses, ", ") + ")"
}

var (
	// ErrDeposed reports that another server has taken over, or may. This server must end its sessions and its process.
	ErrDeposed = errors.New("this server is not the active one any more")
	// ErrHandOver reports that the active server must hand over, after [Cluster.StepDown] or because etcd answers it too late.
	ErrHandOver = errors.New("this server hands over")
	// ErrActive is returned by operations that are allowed only while no server is active or stands by.
	ErrActive = errors.New("a server is active or stands by; stop all of them first; one that was killed is listed until its ttl is over")
)

// keys are the names of all keys, which have one prefix.
type keys string

func (k keys) servers() string                      { return string(k) + "leader/" }
func (k keys) server(lease clientv3.LeaseID) string { return fmt.Sprintf("%s%x", k.servers(), lease) }
func (k keys) allNotReady() string                  { return string(k) + "not-ready/" }
func (k keys) notReady(lease clientv3.LeaseID) string {
	return fmt.Sprintf("%s%x", k.allNotReady(), lease)
}
func (k keys) tokens() string   { return string(k) + "tokens" } // larger tokens were never granted
func (k keys) epoch() string    { return string(k) + "epoch" }
func (k keys) beat() string     { return string(k) + "beat" }
func (k keys) stepDown() string { return string(k) + "step-down" } // the election key that is to go
func (k keys) locks() string    { return string(k) + "lock/" }

// lock returns the key of a hold: the name, which begins with a slash, and the token in hexadecimal.
func (k keys) lock(n lock.Name, t lock.Token) string {
	return string(k) + "lock" + string(n) + "/" + strconv.FormatUint(uint64(t), 16)
}

// holdOf returns the name and the token of such a key.
func (k keys) holdOf(key []byte) (lock.Name, lock.Token, error) {
	name := strings.TrimPrefix(string(key), string(k)+"lock")
	i := strings.LastIndexByte(name, '/')
	if i < 2 || name[0] != '/' {
		return "", 0, fmt.Errorf("etcd: %q is not a lock key", key)
	}
	token, err := strconv.ParseUint(name[i+1:], 16, 64)
	if err != nil {
		return "", 0, fmt.Errorf("etcd: %q is not a lock key", key)
	}
	return lock.Name(name[:i]), lock.Token(token), nil
}
