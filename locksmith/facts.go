package locksmith

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reply is what a server answers to one command (RFC 959 section 4.2). Its text is for people: nothing here depends on it.
type reply struct {
	code int
	said string // without the code; lines are separated by line ends
}

// text is the reply on one line.
func (r reply) text() string {
	if !strings.Contains(r.said, "\n") {
		return r.said
	}
	return strings.Join(strings.Fields(r.said), " ")
}

// String is the reply as people read it.
func (r reply) String() string { return strconv.Itoa(r.code) + " " + r.text() }

func (r reply) good() bool { return r.code >= 200 && r.code < 300 }

// transient reports whether the same command may succeed later (RFC 959 section 4.2.1).
func (r reply) transient() bool { return r.code >= 400 && r.code < 500 }

// Info is what a server tells of one lock.
type Info struct {
	Path    string
	Held    bool
	Since   time.Time // when it was taken; zero if the server does not tell
	Holders []Holder  // none from a server that has no facts
	Waiting int       // clients in the queue
	Reply   string    // of ftplockd, if the lock is not held: why, for people

	busy    bool // MKD would be refused, held or not
	refused bool // MKD would be refused for good
}

// Holder is one client that holds a lock.
type Holder struct {
	Owner   string // account@address
	Held    time.Duration
	Expires time.Duration // from now; 0 if never
	Shared  bool
	Token   uint64
	Mine    bool // this connection took it, or another one with the same nonce

	own     bool // this connection took it
	adopted uint64
	lease
}

// newInfo reads the lines of facts in a reply to SITE LOCK INFO (RFC 3659 section 7.2): " fact=value;fact=value; path".
func newInfo(path string, r reply) Info {
	if r.code != 211 {
		return Info{Path: path, Reply: r.text()}
	}
	i := Info{Path: path}
	for line := range strings.SplitSeq(r.said, "\n") {
		pairs, path, ok := strings.Cut(strings.TrimPrefix(line, " "), "; ")
		if !ok || !strings.HasPrefix(strings.ToLower(pairs), "type=") {
			continue // a line for people
		}
		i.Path, i.busy = path, true
		i.add(pairs)
	}
	return i
}

// add takes in one line.
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
		return max(time.Duration(f*float64(time.Second)), 1) // "0.000" is a limit, too
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
	since, err := time.Parse("20060102150405", facts["since"])
	if err == nil && (i.Since.IsZero() || since.Before(i.Since)) {
		i.Since = since
	}
	i.Held, i.Holders = true, append(i.Holders, h)
}

// find returns the first holder that fits.
func (i Info) find(fits func(Holder) bool) (Holder, bool) {
	at := slices.IndexFunc(i.Holders, fits)
	if at < 0 {
		return Holder{}, false
	}
	return i.Holders[at], true
}

// ours returns the hold that this connection took.
func (i Info) ours() (Holder, bool) { return i.find(func(h Holder) bool { return h.own }) }

// heldError returns the error of a client that is refused the lock.
func (i Info) heldError(path string) *HeldError {
	e := &HeldError{Path: path, Waiting: i.Waiting}
	if len(i.Holders) > 0 {
		e.Holder, e.Held = i.Holders[0].Owner, i.Holders[0].Held
	} else if age := time.Since(i.Since); !i.Since.IsZero() && age > 0 {
		e.Held = age
	}
	return e
}
