// Package etcd is the [lock.Log] of several servers that stand by for each other: the holds are keys of an etcd cluster, and one
// server at a time, the active one, changes them.
//
// Its types: a [Cluster] is a server's connection to etcd, made by [Open] from [Options]; [Cluster.Campaign] waits until the server is
// the active one, and returns the [Log] of its term; [Status] lists members and servers.
//
// Guarantees: a record for which Wait returned nil is on the disks of most members of etcd. A server that is not the active one any
// more changes nothing, whether it has noticed that or not: each batch of records is one transaction that compares the fence, which is
// the ModRevision of the server's election key. Tokens come from blocks that are reserved in etcd before use, so they grow over the
// terms of all servers. A transaction without an answer is never followed by another one that it could overtake.
//
// Caveats: [Log.Valid] compares the boot clock with the end of the lease, without a request, and a process that is stopped between
// that check and its next step is not held up by it. The times of holds are on a [timeline] that a standby continues by the beats that it
// saw; a server that saw none uses the wall clock. The history may lose its last second in a crash. etcd must be
// compacted by its own settings: a term writes a key each second.
//
// Start reading at [Cluster.Campaign], [Log.Append], term.go and writer.go; coder.go has the format.
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

// Options are what a Cluster is opened with. A zero field gets its default.
type Options struct {
	Endpoints      []string      // of the members of etcd, required: "https://10.0.0.1:2379"
	Prefix         string        // of all keys; "/ftplockd/". It has no element "lock", "history" or "leader"
	TTL            time.Duration // whole seconds: so long after its last sign of life another server takes over; 5s
	Margin         time.Duration // the lease counts as over so long before it is; a fifth of TTL
	RequestTimeout time.Duration // one member of etcd is waited for so long; 700ms
	TLS            *tls.Config   // nil: none
	User, Password string
	Clock          lock.Clock    // required
	BootID         string        // of this boot of the machine; "": times of earlier starts are mapped by the wall clock
	Log            *slog.Logger  // nil: silent
	HistoryAge     time.Duration // entries of the history go when they are older; 0: never
	HistorySize    int64         // the oldest entries of the history go when all have more bytes; 0: any size
	After          lock.Token    // all tokens are larger than this one
	Self           Server
}

// Server is the value of an election key, which the other servers read.
type Server struct {
	Name      string    `json:"name"`
	Addresses []string  `json:"addresses,omitempty"` // where it serves FTP when it is the active one
	Version   string    `json:"version,omitempty"`
	Rules     string    `json:"rules,omitempty"` // a hash of its rules
	Since     time.Time `json:"since,omitzero"`  // when it was started

	// RoundTrip is the longest of its last requests to etcd while it stood by; 0: not measured yet.
	RoundTrip time.Duration `json:"round_trip,omitempty"`
}

// String returns the name and the addresses.
func (s Server) String() string {
	if len(s.Addresses) == 0 {
		return s.Name
	}
	return s.Name + " (" + strings.Join(s.Addresses, ", ") + ")"
}

var (
	// ErrDeposed reports that another server has taken over, or may: this one must end its sessions and its process.
	ErrDeposed = errors.New("this server is not the active one any more")
	// ErrHandOver reports that the active server gives its place to the next one: [Cluster.StepDown] asked it to, or etcd answers
	// another server faster.
	ErrHandOver = errors.New("this server hands over")
	// ErrActive is returned by operations that are allowed only while no server is active.
	ErrActive = errors.New("a server is active or stands by; stop all of them first; one that was killed is listed until its ttl is over")
)

func (o *Options) setDefaults() error {
	if len(o.Endpoints) == 0 || o.Clock == nil {
		return errors.New("etcd: endpoints and a clock are needed")
	}
	if o.Prefix == "" {
		o.Prefix = "/ftplockd/"
	}
	if !strings.HasSuffix(o.Prefix, "/") {
		o.Prefix += "/"
	}
	for _, element := range strings.Split(o.Prefix, "/") {
		if slices.Contains(ranges, element) {
			return fmt.Errorf("etcd: the prefix %s has the element %q, so its keys could be keys of other servers with the prefix before it; rename it", o.Prefix, element)
		}
	}
	if o.TTL == 0 {
		o.TTL = 5 * time.Second
	}
	if o.Margin == 0 {
		o.Margin = o.TTL / 5
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 700 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// keys are the names of all keys, which have one prefix.
type keys string

// ranges are the elements of keys that have others below them. No prefix contains one of them, and each prefix ends with a slash, so a key below
// a longer prefix is never in a range of a shorter one.
var ranges = []string{"leader", "lock", "history"}

func (k keys) election() string                     { return string(k) + "leader" } // concurrency.Election adds a slash and the lease
func (k keys) servers() string                      { return k.election() + "/" }
func (k keys) server(lease clientv3.LeaseID) string { return fmt.Sprintf("%s%x", k.servers(), lease) }
func (k keys) tokens() string                       { return string(k) + "tokens" } // tokens up to its value may have been given
func (k keys) epoch() string                        { return string(k) + "epoch" }
func (k keys) beat() string                         { return string(k) + "beat" }
func (k keys) stepDown() string                     { return string(k) + "step-down" }
func (k keys) locks() string                        { return string(k) + "lock/" }

// lock returns the key of a hold: the name, which begins with a slash, and the token in hexadecimal.
func (k keys) lock(n lock.Name, t lock.Token) string {
	return string(k) + "lock" + string(n) + "/" + strconv.FormatUint(uint64(t), 16)
}

// holdOf returns the name and the token of such a key.
func (k keys) holdOf(key []byte) (lock.Name, lock.Token, error) {
	name := strings.TrimPrefix(string(key), string(k)+"lock")
	i := strings.LastIndexByte(name, '/')
	if i < 2 || name[0] != '/' {
		return "", 0, fmt.Errorf("etcd: the key %q is none of a lock", key)
	}
	token, err := strconv.ParseUint(name[i+1:], 16, 64)
	if err != nil {
		return "", 0, fmt.Errorf("etcd: the key %q is none of a lock", key)
	}
	return lock.Name(name[:i]), lock.Token(token), nil
}
