package locksmith

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reply is the reply to one command (RFC 959 section 4.2). The package parses only the texts of FEAT and SITE LOCK INFO; other texts are for people.
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

// Info describes one lock.
type Info struct {
	Path    string
	Held    bool
	Holders []Holder // empty for a server without facts
	Waiting int      // the length of the queue
	Reply   string   // the text of ftplockd's reply if the lock is not held

	since   time.Time // of a directory on a server without facts; zero if unknown
	busy    bool      // MKD would be refused, held or not
	refused bool      // MKD would be refused for good
}

// Holder is one client that holds a lock.
type Holder struct {
	Owner   string // account@address
	Held    time.Duration
	Expires time.Duration // from now; 0 if never
	Shared  bool
	Token   uint64
	Mine    bool // this connection or another one with the same nonce acquired the lock

	own     bool // this connection acquired the lock
	adopted uint64
	lease
}

// newInfo reads the lines of facts in a reply to SITE LOCK INFO (RFC 3659 section 7.2): " fact=value;fact=value; path".
func newInfo(path string, r reply) Info {
	if r.code != 211 {
		return Info{Path: path, Reply: r.text()}
	}
	i := Info{Path: path}
	for line := range strings.SplitSeq(r.raw, "\n") {
		pairs, path, ok := strings.Cut(strings.TrimPrefix(line, " "), "; ")
		if !ok || !strings.HasPrefix(strings.ToLower(pairs), "type=") {
			continue // the line has no facts
		}
		i.Path, i.busy = path, true
		i.add(pairs)
	}
	return i
}

// add adds the facts of one line.
func (i *Info) add(pairs string) {
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
	i.refused = facts["mkd"] == "refused"
	token, err := strconv.ParseUint(facts["token"], 10, 64)
	if facts["type"] != "lock" || err != nil {
		return
	}
	h := Holder{
		Owner: facts["account"] + "@" + facts["address"], Held: seconds("held"), Expires: seconds("left"), Shared: facts["shared"] == "yes",
		Token: token, Mine: facts["mine"] == "session" || facts["mine"] == "job", own: facts["mine"] == "session",
		lease: lease{left: seconds("left"), grace: seconds("grace"), age: seconds("age"), idle: seconds("idle")},
	}
	h.adopted, _ = strconv.ParseUint(facts["adopted"], 10, 64)
	i.Held, i.Holders = true, append(i.Holders, h)
}

// find returns the first holder that matches.
func (i Info) find(fits func(Holder) bool) (Holder, bool) {
	at := slices.IndexFunc(i.Holders, fits)
	if at < 0 {
		return Holder{}, false
	}
	return i.Holders[at], true
}

// ownHold returns the hold of this connection.
func (i Info) ownHold() (Holder, bool) { return i.find(func(h Holder) bool { return h.own }) }

// heldError returns the error of a client that was refused the lock.
func (i Info) heldError(path string) *HeldError {
	e := &HeldError{Path: path, Waiting: i.Waiting}
	if len(i.Holders) > 0 {
		e.Holder, e.Held = i.Holders[0].Owner, i.Holders[0].Held
	} else if age := time.Since(i.since); !i.since.IsZero() && age > 0 {
		e.Held = age
	}
	return e
}
