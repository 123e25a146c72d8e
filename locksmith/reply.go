package locksmith

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reply is what a server answers to one command (RFC 959 section 4.2).
type reply struct {
	code int
	said string // without the code; lines are separated by line ends
}

// lines are the lines of the reply, never none.
func (r reply) lines() []string { return strings.Split(r.said, "\n") }

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

// body is the lines between the first and the last, without the blanks around them.
func (r reply) body() []string {
	all := r.lines()
	if len(all) < 3 {
		return nil
	}
	all = all[1 : len(all)-1]
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return all
}

// quotedName is the path that a 257 begins with: in quotes, and quotes in it doubled (RFC 959 appendix II). "" if
// there is none: some servers say only that it was done.
func (r reply) quotedName() string {
	rest, ok := strings.CutPrefix(r.lines()[0], `"`)
	if !ok {
		return ""
	}
	var name strings.Builder
	for {
		part, after, closed := strings.Cut(rest, `"`)
		if !closed {
			return ""
		}
		name.WriteString(part)
		if !strings.HasPrefix(after, `"`) {
			return name.String()
		}
		name.WriteByte('"')
		rest = after[1:]
	}
}

// grant is what the 257 of a lock, and the 200 of SITE LOCK RENEW, say behind the path.
type grant struct {
	token   uint64        // 0: the server has none
	expires time.Duration // from now; 0: never
	idle    time.Duration // it ends so long after the last command; 0: the server has no such limit, or it is longer than expires
	adopted bool          // from a hold of the same nonce
}

var (
	lockedAs  = regexp.MustCompile(` locked, token (\d+)`)
	expiresIn = regexp.MustCompile(`expires in ([0-9hms.]+)`)
	idleFor   = regexp.MustCompile(`([0-9hms.]+) after its last sign of life`)
	adopted   = regexp.MustCompile(`adopted from token \d+`)
)

// grant reads the words behind the path, which may itself contain such words.
func (r reply) grant() (grant, bool) {
	line := r.lines()[0]
	text := line[strings.LastIndex(line, `"`)+1:]
	m := lockedAs.FindStringSubmatch(text)
	if m == nil {
		return grant{}, false
	}
	g := grant{adopted: adopted.MatchString(text)}
	var err error
	g.token, err = strconv.ParseUint(m[1], 10, 64)
	if m := expiresIn.FindStringSubmatch(text); m != nil {
		g.expires = max(duration(m[1]), 1) // 0 is less than half a second
	}
	if m := idleFor.FindStringSubmatch(text); m != nil {
		g.idle = max(duration(m[1]), 1)
	}
	return g, err == nil
}

// cut reports whether the text behind the path of a 257 was shortened, perhaps to nothing: ftplockd writes 128 bytes at most.
func (r reply) cut() bool {
	return r.code == 257 && (strings.HasSuffix(r.said, "...") || strings.HasSuffix(r.said, `"`))
}

// duration reads what ftplockd writes; 0 for anything else.
func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0
	}
	return d
}

var (
	heldBy  = regexp.MustCompile(`^.*(?:held|shared) by (.+?) for ([0-9hms.]+)`)
	placeOf = regexp.MustCompile(`; place (\d+) of (\d+) in the queue`)
	inQueue = regexp.MustCompile(`(\d+) in the queue`)
)

// refusal is what a 550 says of whoever is in the way.
func (r reply) refusal() Refusal {
	text := r.text()
	f := Refusal{Reply: text}
	if m := heldBy.FindStringSubmatch(text); m != nil {
		f.Holder, f.Held = m[1], duration(m[2])
	}
	if m := placeOf.FindStringSubmatch(text); m != nil {
		f.At, f.Of = number(m[1]), number(m[2])
	} else if m := inQueue.FindStringSubmatch(text); m != nil {
		f.Of = number(m[1])
	}
	return f
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// waitable is what ftplockd says of a lock that somebody has, or may have before us.
var waitable = regexp.MustCompile(`: (?:waited \S+: )?(?:held by |others came earlier, |kept back for |there may be \d+ such locks, |.+ below it is held by )`)

func (r reply) waitable() bool { return waitable.MatchString(r.text()) }

// noLock is what ftplockd says of a name that no rule makes a lock.
var noLock = regexp.MustCompile(`: no rule makes that name a lock$`)

// withdrawn is what ftplockd says of an MKD that waited when another command came.
func (r reply) withdrawn() bool { return strings.HasSuffix(r.text(), ": not waited for any longer") }

var holderLine = regexp.MustCompile(`^(held|shared) by (.+) for ([0-9hms.]+), (?:expires in ([0-9hms.]+)|never expires), token (\d+)$`)

// addLine takes in one line of SITE LOCK INFO or one part of a line of SITE LOCKS.
func (i *Info) addLine(line string, now time.Time) {
	if m := holderLine.FindStringSubmatch(line); m != nil {
		token, err := strconv.ParseUint(m[5], 10, 64)
		if err != nil {
			return
		}
		h := Holder{Owner: m[2], Held: duration(m[3]), Expires: duration(m[4]), Shared: m[1] == "shared", Token: token}
		if m[4] != "" {
			h.Expires = max(h.Expires, 1) // 0 is less than half a second
		}
		i.Held, i.Holders = true, append(i.Holders, h)
		if since := now.Add(-h.Held); i.Since.IsZero() || since.Before(i.Since) {
			i.Since = since
		}
		return
	}
	if m := inQueue.FindStringSubmatch(line); m != nil {
		i.Waiting = number(m[1])
	}
}

// has reports whether a holder has the token.
func (i Info) has(token uint64) bool {
	return slices.ContainsFunc(i.Holders, func(h Holder) bool { return h.Token == token })
}

// lockOfLine reads one line of SITE LOCKS: the path, then what SITE LOCK INFO says in several lines.
func lockOfLine(line string, now time.Time) (Info, bool) {
	at := max(strings.LastIndex(line, ": held by "), strings.LastIndex(line, ": shared by ")) // a path may contain such words
	if at <= 0 {
		return Info{}, false
	}
	info := Info{Path: line[:at]}
	for part := range strings.SplitSeq(line[at+2:], "; ") {
		info.addLine(part, now)
	}
	return info, info.Held
}
