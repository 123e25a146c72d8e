package lock

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// Name is the name of a lock: a slash-separated absolute path in the served tree, cleaned, the links in its parent
// resolved. It holds the bytes that the client sent, in no particular encoding. "/" is the tree itself and never a lock.
type Name string

// Parent returns the directory that contains the name.
func (n Name) Parent() Name {
	if i := strings.LastIndexByte(string(n), '/'); i > 0 {
		return n[:i]
	}
	return "/"
}

// Base returns the last element of the name.
func (n Name) Base() string { return path.Base(string(n)) }

// Within reports whether n is dir itself or lies below it.
func (n Name) Within(dir Name) bool {
	if dir == "/" || n == dir {
		return true
	}
	return len(n) > len(dir) && n[len(dir)] == '/' && n[:len(dir)] == dir
}

// Token is a fencing token (Kleppmann 2016; the sequencer of Chubby, Burrows 2006): a number that grows with every
// grant of a server. 0 is no token.
type Token uint64

// SessionID distinguishes a client connection from every other one, also from those before a restart. 0 is no session.
type SessionID uint64

// sessionBits is the width of the session's number in a SessionID. The start of the server fills the rest: 2^24 starts
// with 2^40 sessions each.
const sessionBits = 40

// newSessionID returns the id of a session of a start.
func newSessionID(start uint32, number uint64) SessionID {
	return SessionID(uint64(start)<<sessionBits | number&(1<<sessionBits-1))
}

// String returns the number of the server's start and the number of the session since then: "3-17"; "" for no session.
func (id SessionID) String() string { return string(id.Append(nil)) }

// Append appends the form that String returns.
func (id SessionID) Append(b []byte) []byte {
	if id == 0 {
		return b
	}
	b = append(strconv.AppendUint(b, uint64(id>>sessionBits), 10), '-')
	return strconv.AppendUint(b, uint64(id)&(1<<sessionBits-1), 10)
}

// ParseSessionID reads the form that String writes.
func ParseSessionID(text string) (SessionID, error) {
	start, number, _ := strings.Cut(text, "-")
	high, err := strconv.ParseUint(start, 10, 64-sessionBits)
	low, lerr := strconv.ParseUint(number, 10, sessionBits)
	if err != nil || lerr != nil {
		return 0, fmt.Errorf("%q is no session id; an example is 3-17", text)
	}
	return SessionID(high<<sessionBits | low), nil
}

// Owner is the client that a hold belongs to.
type Owner struct {
	Account string    // the account that logged in; "host" for a program on the server's own machine
	Address string    // its IP address, without the port
	Session SessionID // the connection that acquired the lock; 0 for the host
	JobKey  string    // the argument of SITE LOCK AS, "" without one: sessions of one account with one job key are one job
}

// HostAccount is the Account of a directory that a program on the host made.
const HostAccount = "host"

// String returns account@address, or the account alone.
func (o Owner) String() string {
	if o.Address == "" {
		return o.Account
	}
	return o.Account + "@" + o.Address
}

// Instant is a moment on both clocks.
type Instant struct {
	Wall time.Time     // for people, and for ages across a boot
	Boot time.Duration // since the boot of this machine, suspend included; ages count on it. Negative for a moment before the boot
}

// Clock is the source of a table's time.
type Clock interface {
	// Now returns the time without a system call. After a suspend its Boot is late by at most a second.
	Now() Instant
	// Exact returns the time with Boot as CLOCK_BOOTTIME has it. It costs a system call.
	Exact() Instant
}
