// Package etcd is the [lock.Store] of several servers that stand by for each other: the locks are keys of an etcd cluster, and one
// server at a time, the active one, changes them.
//
// Its types: a [Cluster] is a server's connection to etcd, made by [Open] from [Options]; [Cluster.Campaign] waits until the server is
// the active one, and returns the [Store] of its term; [Status] says who is there.
//
// What is promised: a change that Commit returned is on the disks of most members of etcd. A server that is not the active one any
// more, whether it knows or not, changes nothing: each change is one transaction that compares the fence, which is the ModRevision of
// the server's election key. Tokens are a base plus etcd's revision, so they grow over the terms of all servers. A change
// of which etcd has not told is never reported as failed unless a later one has made sure that it cannot be made any more.
//
// What is not: time. That a server is the active one can be asked without a request only as long as its lease surely lasts
// ([Store.Valid]), and a process that stops between that look and what it does next is not held up by it. Ages are mapped from one
// server's clock to another's by what a standby has seen while both were running; a server that was started later goes by the wall
// clock. etcd must be compacted by its own settings: a term writes a key each second.
//
// Start reading at [Cluster.Campaign] and [Store.Commit]; settle.go is what happens when etcd does not answer, record.go the format.
package etcd

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// Options are what a Cluster is opened with. What is zero gets its default.
type Options struct {
	Endpoints      []string      // of the members of etcd, required: "https://10.0.0.1:2379"
	Prefix         string        // of all keys; "/ftplockd/"
	TTL            time.Duration // whole seconds: so long after its last sign of life another server takes over; 5s
	Margin         time.Duration // the lease counts as over so long before it is; a fifth of TTL
	RequestTimeout time.Duration // one member of etcd is waited for so long; 700ms
	TLS            *tls.Config   // nil: none
	User, Password string
	Clock          lock.Clock    // required
	Log            *slog.Logger  // nil: silent
	HistoryAge     time.Duration // lines of the history go when they are older; 0: never
	HistorySize    int64         // the oldest lines of the history go when all have more bytes; 0: any size
	Self           Server
}

// Server is what the servers know of each other: the value of an election key.
type Server struct {
	Name      string    `json:"name"`
	Addresses []string  `json:"addresses,omitempty"` // where it serves FTP when it is the active one
	Version   string    `json:"version,omitempty"`
	Rules     string    `json:"rules,omitempty"` // a hash of its rules
	Since     time.Time `json:"since,omitzero"`  // when it was started
}

var (
	// ErrDeposed says that another server has taken over, or may: this one must end its sessions and its process.
	ErrDeposed = errors.New("this server is not the active one any more")
	// ErrStepDown says that [Cluster.StepDown] has asked the active server to hand over.
	ErrStepDown = errors.New("this server was asked to hand over")
	// ErrActive is returned for what may be done only while no server is active.
	ErrActive = errors.New("a server is active or stands by; stop all of them first; one that was killed seems to be there for ttl")
)

// ClosedError is returned where the locks have moved elsewhere, or are being moved to here: no server may take over.
type ClosedError struct{ Prefix, Reason string }

func (e *ClosedError) Error() string { return "etcd: " + e.Prefix + " is closed: " + e.Reason }

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

// keys are the names of what is stored, all below one prefix.
type keys string

func (k keys) election() string            { return string(k) + "leader" } // concurrency.Election adds a slash and the lease
func (k keys) servers() string             { return k.election() + "/" }
func (k keys) base() string                { return string(k) + "base" }
func (k keys) epoch() string               { return string(k) + "epoch" }
func (k keys) beat() string                { return string(k) + "beat" }
func (k keys) stepDown() string            { return string(k) + "step-down" }
func (k keys) closed() string              { return string(k) + "closed" } // why no server may take over
func (k keys) moving() string              { return string(k) + "moving" } // which import has written last
func (k keys) locks() string               { return string(k) + "lock/" }
func (k keys) lock(n lock.Name) string     { return k.locks() + string(n) }
func (k keys) nameOf(key []byte) lock.Name { return lock.Name(key[len(k.locks()):]) }
