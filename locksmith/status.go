package locksmith

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reply is the reply to one command (RFC 959 section 4.2). The package parses only the lines of FEAT and the facts of SITE LOCK INFO; other texts are for people.
type reply struct {
	code int
	raw  string // the text without the code
}

// text returns the text on one line.
func (r reply) text() string {
	return strings.Join(strings.Fields(r.raw), " ")
}

// String returns the code and the text.
func (r reply) String() string { return strconv.Itoa(r.code) + " " + r.text() }

// positive reports whether the server has completed the command (RFC 959 section 4.2.1).
func (r reply) positive() bool { return r.code >= 200 && r.code < 300 }

// transient reports whether the same command may succeed later (RFC 959 section 4.2.1).
func (r reply) transient() bool { return r.code >= 400 && r.code < 500 }

// Status describes one lock.
type Status struct {
	Path        string
	Held        bool
	Holders     []Holder // empty on a server without FeatureTokens
	Waiting     int      // the length of the queue
	Unsupported Unsupported

	since   time.Time // of a directory on a server without facts; zero if unknown
	busy    bool      // MKD would be refused, held or not
	refused bool      // MKD would be refused for good
	refusal string    // the text of a refusal to describe the lock
}

// Holder is one client that holds a lock.
type Holder struct {
	Owner   string // account@address
	Note    string // of Options; "": none
	Held    time.Duration
	Expires time.Duration // from now; 0 if never
	Shared  bool
	Token   uint64
	Mine    bool // this connection or another one with the same JobKey acquired the lock

	own     bool // this connection acquired the lock
	adopted uint64
	lease
}

// newStatus reads the lines of facts in a reply to SITE LOCK INFO (RFC 3659 section 7.2): " fact=value;fact=value; path".
func newStatus(path string, r reply) Status {
	i := Status{Path: path}
	if r.code != 211 {
		i.refusal = r.text()
		return i
	}
	for line := range strings.SplitSeq(r.raw, "\n") {
		pairs, path, ok := strings.Cut(strings.TrimPrefix(line, " "), "; ")
		if !ok || !strings.HasPrefix(strings.ToLower(pairs), "type=") {
			continue // the line has no facts
		}
		i.Path = path
		i.add(pairs)
	}
	return i
}

// add adds the facts of one line.
func (i *Status) add(pairs string) {
	facts := make(map[string]string)
	for pair := range strings.SplitSeq(pairs, ";") {
		name, value, _ := strings.Cut(pair, "=")
		if plain, err := url.PathUnescape(value); err == nil {
			value = plain
		}
		facts[strings.ToLower(name)] = value
	}
	seconds := func(name string) time.Duration {
		f, err := strconv.ParseFloat(facts[name], 64)
		if err != nil || f < 0 || f > 1e9 {
			return 0
		}
		return max(time.Duration(f*float64(time.Second)), 1) // 0 means no limit, "0.000" is one
	}
	i.Waiting, _ = strconv.Atoi(facts["waiting"])
	i.busy, i.refused = facts["type"] != "free", facts["mkd"] == "refused"
	token, err := strconv.ParseUint(facts["token"], 10, 64)
	if facts["type"] != "lock" || err != nil || token == 0 {
		return // a hold without a token cannot be told from another one
	}
	h := Holder{
		Owner: facts["account"] + "@" + facts["address"], Note: facts["note"], Held: seconds("held"), Expires: seconds("left"), Shared: facts["shared"] == "yes",
		Token: token, Mine: facts["mine"] == "session" || facts["mine"] == "job", own: facts["mine"] == "session",
		lease: lease{left: seconds("left"), grace: seconds("grace"), age: seconds("age"), idle: seconds("idle"), most: seconds("longest")},
	}
	h.adopted, _ = strconv.ParseUint(facts["adopted"], 10, 64)
	i.Held, i.Holders = true, append(i.Holders, h)
}

// find returns the first holder that matches.
func (i Status) find(fits func(Holder) bool) (Holder, bool) {
	at := slices.IndexFunc(i.Holders, fits)
	if at < 0 {
		return Holder{}, false
	}
	return i.Holders[at], true
}

// ownHold returns the hold of this connection.
func (i Status) ownHold() (Holder, bool) { return i.find(func(h Holder) bool { return h.own }) }

// heldError returns the error of a client that was refused the lock.
func (i Status) heldError(path string) *HeldError {
	e := &HeldError{Path: path, Waiting: i.Waiting}
	if len(i.Holders) > 0 {
		e.Holder, e.Note, e.Held = i.Holders[0].Owner, i.Holders[0].Note, i.Holders[0].Held
	} else if age := time.Since(i.since); !i.since.IsZero() && age > 0 {
		e.Held = age
	}
	return e
}

// A Feature is a promise of ftplockd that other servers cannot make.
type Feature string

// The features of a server.
const (
	// FeatureLease: Lock.Context ends before the server can grant the lock to another client.
	FeatureLease Feature = "lease"
	// FeatureTokens: each grant has a fencing token.
	FeatureTokens Feature = "tokens"
	// FeatureRelease: Release never removes the lock of another client, and a lost reply leaves no lock behind.
	FeatureRelease Feature = "release"
	// FeatureGrace: the lock of a client that died ends after Config.Grace.
	FeatureGrace Feature = "grace"
	// FeatureMaxAge: Options.MaxAge limits the age of the lock.
	FeatureMaxAge Feature = "max age"
	// FeatureShared: several clients can hold one lock (Options.Shared).
	FeatureShared Feature = "shared"
	// FeatureQueue: waiting clients get the lock in the order in which they asked, also over several tries of one Acquire; a restart of the server
	// forgets the order. Without it, Acquire tries at random times.
	FeatureQueue Feature = "queue"
	// FeatureStaged: the server publishes an upload in one step. Without it, Put uploads to a temporary name and renames it.
	FeatureStaged Feature = "staged uploads"
	// FeatureNote: the server shows Options.Note. Without it, the note is left out.
	FeatureNote Feature = "notes"
)

// Unsupported are the features that a server does not have. It is also the error, which matches ErrRefused, for options that need them.
type Unsupported []Feature

// Has reports whether the server lacks the feature.
func (u Unsupported) Has(f Feature) bool { return slices.Contains(u, f) }

// Error is of the form "the server does not support max age, shared".
func (u Unsupported) Error() string {
	if len(u) == 0 {
		return "the server supports all features"
	}
	var names []string
	for _, f := range u {
		names = append(names, string(f))
	}
	return "the server does not support " + strings.Join(names, ", ")
}

// Unwrap makes the error match ErrRefused.
func (u Unsupported) Unwrap() error { return ErrRefused }
