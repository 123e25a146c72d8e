package record

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// coder writes a line, or reads one. Its methods take pointers to the fields, in the order of the line, so one list of fields serves for both.
type coder struct {
	reading bool
	b       []byte // the line so far, or the rest to read
	length  int    // of the line to read
	err     error  // the first fault of the line to read; b is empty then
}

// fail records that the rest does not begin with what belongs there. Only the first call counts.
func (c *coder) fail(want string) {
	if c.err == nil {
		c.err = fmt.Errorf("at byte %d: want %s", c.length-len(c.b)+1, want)
	}
	c.b = nil
}

// record codes a record, and when it writes, also the kind.
func (c *coder) record(r *lock.Record, held *time.Duration) {
	h := &r.Hold
	if !c.reading {
		c.b = append(c.b, kinds[r.Kind]...)
	} else if !bytes.HasPrefix(c.b, []byte("/")) {
		c.fail("a name with a slash at its beginning")
	}
	text(c, "", &h.Name)
	number(c, " ", &h.Token)
	if text(c, " ", &r.Cause); c.reading && r.Cause == "" && r.Kind != Held {
		c.fail("a cause")
	}
	c.instant(" ", &r.At, lock.Instant{})
	c.owner(" ", &h.Owner)
	if c.key(" by=", r.By != h.Owner) {
		c.owner("", &r.By)
	} else if c.reading {
		r.By = h.Owner
	}
	number(c, " replaces=", &r.Replaces)
	c.duration(" held=", held)
	text(c, " note=", &r.Note)
	if c.key(" file=", r.File != nil) {
		if c.reading {
			r.File = new(lock.Publication)
		}
		text(c, "", &r.File.Path)
		number(c, " bytes=", &r.File.Bytes)
		text(c, " sha256=", &r.File.SHA256)
	}
	c.flag(" automatic", &h.Job)
	if r.Kind == lock.Granted || r.Kind == lock.Changed || r.Kind == Held {
		c.hold(h, r.At)
	}
	if c.reading && r.Kind == Held && h.Rule == nil {
		c.fail("a rule")
	}
}

func (c *coder) owner(key string, o *lock.Owner) {
	text(c, key, &o.Account)
	text(c, " ", &o.Address)
	c.session(" ", &o.Session)
	text(c, " as=", &o.JobKey)
}

// hold codes the fields of a hold that only lines of the kinds Granted, Changed and Held have. at is the time of the line.
func (c *coder) hold(h *lock.Hold, at lock.Instant) {
	c.instant(" acquired=", &h.Acquired, at)
	c.instant(" renewed=", &h.Renewed, h.Acquired)
	c.flag(" shared", &h.Shared)
	c.duration(" asked_age=", &h.Asked.Age)
	c.flag(" asked_release", &h.Asked.Release)
	c.duration(" asked_grace=", &h.Asked.Grace)
	number(c, " inode=", &h.Directory.Inode)
	number(c, " birth=", &h.Directory.Birth)
	number(c, " parent=", &h.Directory.Parent)
	text(c, " hold_note=", &h.Note)
	if !c.key(" rule=", h.Rule != nil) {
		return
	}
	if c.reading {
		h.Rule = new(lock.Rule)
	}
	r := h.Rule
	text(c, "", &r.Match)
	for _, d := range [...]*time.Duration{&r.MaxAge, &r.MaxIdle, &r.Grace, &r.LockDelay} {
		c.duration(" ", d)
	}
	text(c, " ", &r.OnDisconnect)
	text(c, " ", &r.Release)
	c.flag(" allow_cwd", &r.AllowCwd)
}

// key codes the text before a value, and reports whether the value is in the line. When it writes, has decides. After a blank or nothing the value
// is always in the line.
func (c *coder) key(key string, has bool) bool {
	always := key == " " || key == ""
	if has = has || always; !c.reading {
		if has {
			c.b = append(c.b, key...)
		}
		return has
	}
	if has = len(c.b) >= len(key) && string(c.b[:len(key)]) == key; has {
		c.b = c.b[len(key):]
	} else if always {
		c.fail("a blank")
	}
	return has
}

func (c *coder) flag(key string, value *bool) {
	if has := c.key(key, *value); c.reading { // other goroutines may read the rule while it is written to a line
		*value = has
	}
}

// integer is the type of a number.
type integer interface{ ~int64 | ~uint64 }

func number[N integer](c *coder, key string, n *N) {
	if !c.key(key, *n != 0) {
		return
	}
	if !c.reading {
		c.b = appendNumber(c.b, *n)
		return
	}
	end := 0
	for end < len(c.b) && (c.b[end]-'0' <= 9 || end == 0 && c.b[end] == '-') {
		end++
	}
	digits := string(c.b[:end])
	signed, err := strconv.ParseInt(digits, 10, 64)
	if *n = N(signed); err != nil {
		unsigned, _ := strconv.ParseUint(digits, 10, 64)
		*n = N(unsigned)
	}
	if again := appendNumber(nil, *n); string(again) != digits { // not a number, or not one of this type
		c.fail("a number")
		return
	}
	c.b = c.b[end:]
}

func appendNumber[N integer](b []byte, n N) []byte {
	if n < 0 {
		return strconv.AppendInt(b, int64(n), 10)
	}
	return strconv.AppendUint(b, uint64(n), 10)
}

// duration codes nanoseconds, or whole seconds with an s.
func (c *coder) duration(key string, d *time.Duration) {
	if !c.key(key, *d != 0) {
		return
	}
	n := *d
	seconds := !c.reading && n != 0 && n%time.Second == 0
	if seconds {
		n /= time.Second
	}
	number(c, "", &n)
	if c.key("s", seconds) && c.reading {
		if n *= time.Second; n/time.Second*time.Second != n {
			c.fail("fewer seconds")
		}
	}
	if c.reading {
		*d = n
	}
}

// instant codes a time: the wall clock, and the time since boot with its sign. A time that is equal to absent is left out.
func (c *coder) instant(key string, at *lock.Instant, absent lock.Instant) {
	if !c.key(key, at.Boot != absent.Boot || !at.Wall.Equal(absent.Wall)) {
		if c.reading {
			*at = absent
		}
		return
	}
	var wall int64
	if !c.reading && !at.Wall.IsZero() {
		wall = at.Wall.UnixNano()
	}
	if number(c, "", &wall); c.reading && wall != 0 {
		at.Wall = time.Unix(0, wall).UTC()
	}
	if plus := c.key("+", at.Boot > 0); plus || at.Boot < 0 || c.reading && bytes.HasPrefix(c.b, []byte("-")) {
		number(c, "", &at.Boot)
	}
}

// session codes the form of lock.SessionID.
func (c *coder) session(key string, id *lock.SessionID) {
	if c.key(key, true); !c.reading {
		c.b = id.Append(c.b)
	} else if word, _, _ := bytes.Cut(c.b, []byte(" ")); len(word) > 0 {
		found, err := lock.ParseSessionID(string(word))
		if err != nil || found == 0 {
			c.fail("a session such as 3-17")
			return
		}
		*id, c.b = found, c.b[len(word):]
	}
}

func text[S ~string](c *coder, key string, s *S) {
	if !c.key(key, *s != "") {
		return
	}
	if !c.reading {
		c.b = AppendText(c.b, string(*s))
		return
	}
	encoded, _, _ := bytes.Cut(c.b, []byte(" "))
	decoded, err := url.PathUnescape(string(encoded))
	if err != nil {
		c.fail("a percent-encoded text")
		return
	}
	*s, c.b = S(decoded), c.b[len(encoded):]
}

// AppendText appends a text in the form that it has in a line.
func AppendText(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	done := 0
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || s[i] == '%' {
			b = append(append(b, s[done:i]...), '%', hex[s[i]>>4], hex[s[i]&15])
			done = i + 1
		}
	}
	return append(b, s[done:]...)
}
