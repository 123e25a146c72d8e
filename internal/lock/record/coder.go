package record

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// coder writes a line, or reads one. The caller names the values one by one, in the order of the form, so one list of them serves for both.
type coder struct {
	reading bool
	b       []byte // the line so far, or what is left to read
	length  int    // of the line to read
	err     error  // the first fault in what is read; b is empty then
}

// fail records that something else belongs at the place that coder reads.
func (c *coder) fail(want string) {
	if c.err == nil {
		c.err = fmt.Errorf("at byte %d: want %s", c.length-len(c.b)+1, want)
	}
	c.b = nil
}

// record codes a record behind its kind.
func (c *coder) record(r *lock.Record, held *time.Duration) {
	h := &r.Hold
	if !c.reading {
		c.b = append(c.b, kinds[r.Kind]...)
	} else if !bytes.HasPrefix(c.b, []byte("/")) {
		c.fail("a name with a slash at its beginning")
	}
	text(c, &h.Name)
	c.literal(" ")
	number(c, &h.Token)
	c.literal(" ")
	if text(c, &r.Cause); c.reading && r.Cause == "" && r.Kind != Held {
		c.fail("a cause")
	}
	c.literal(" ")
	c.instant(&r.At)
	c.literal(" ")
	c.owner(&h.Owner)
	if c.key(" by=", r.By != h.Owner) {
		c.owner(&r.By)
	} else if c.reading {
		r.By = h.Owner
	}
	numberField(c, " replaces=", &r.Replaces)
	c.durationField(" held=", held)
	textField(c, " note=", &r.Note)
	if c.key(" file=", r.File != nil) {
		c.file(r)
	}
	c.flag(" automatic", &h.Job)
	if r.Kind == lock.Granted || r.Kind == lock.Changed || r.Kind == Held {
		c.hold(h, r.At)
	}
	if c.reading && r.Kind == Held && h.Rule == nil {
		c.fail("a rule")
	}
}

func (c *coder) owner(o *lock.Owner) {
	text(c, &o.Account)
	c.literal(" ")
	text(c, &o.Address)
	c.literal(" ")
	c.session(&o.Session)
	textField(c, " as=", &o.Nonce)
}

// session codes the form of lock.SessionID.
func (c *coder) session(id *lock.SessionID) {
	if !c.reading {
		c.b = id.Append(c.b)
		return
	}
	word, _, _ := bytes.Cut(c.b, []byte(" "))
	if len(word) == 0 {
		return
	}
	found, err := lock.ParseSessionID(string(word))
	if err != nil || found == 0 {
		c.fail("a session such as 3-17")
		return
	}
	*id, c.b = found, c.b[len(word):]
}

func (c *coder) file(r *lock.Record) {
	if c.reading {
		r.File = new(lock.Publication)
	}
	text(c, &r.File.Path)
	numberField(c, " bytes=", &r.File.Bytes)
	textField(c, " sha256=", &r.File.SHA256)
}

// hold codes the fields of a hold that only grants, changes and holds have.
func (c *coder) hold(h *lock.Hold, at lock.Instant) {
	c.instantField(" acquired=", &h.Acquired, at)
	c.instantField(" renewed=", &h.Renewed, h.Acquired)
	c.flag(" shared", &h.Shared)
	c.durationField(" asked_age=", &h.Asked.Age)
	c.flag(" asked_release", &h.Asked.Release)
	c.durationField(" asked_grace=", &h.Asked.Grace)
	numberField(c, " inode=", &h.Directory.Inode)
	numberField(c, " birth=", &h.Directory.Birth)
	numberField(c, " parent=", &h.Directory.Parent)
	textField(c, " hold_note=", &h.Note)
	if c.key(" rule=", h.Rule != nil) {
		if c.reading {
			h.Rule = new(lock.Rule)
		}
		c.rule(h.Rule)
	}
}

func (c *coder) rule(r *lock.Rule) {
	text(c, &r.Match)
	for _, d := range [...]*time.Duration{&r.MaxAge, &r.MaxIdle, &r.Grace, &r.LockDelay} {
		c.literal(" ")
		c.duration(d)
	}
	c.literal(" ")
	text(c, &r.OnDisconnect)
	c.literal(" ")
	text(c, &r.Release)
	c.flag(" allow_cwd", &r.AllowCwd)
}

// literal codes a text that is always there.
func (c *coder) literal(text string) {
	if !c.key(text, true) {
		c.fail(strconv.Quote(text))
	}
}

// key codes the text before a value. It reports whether the value is present; when it writes, that is has.
func (c *coder) key(key string, has bool) bool {
	if !c.reading {
		if has {
			c.b = append(c.b, key...)
		}
		return has
	}
	if has = len(c.b) >= len(key) && string(c.b[:len(key)]) == key; has {
		c.b = c.b[len(key):]
	}
	return has
}

func (c *coder) flag(key string, value *bool) {
	if has := c.key(key, *value); c.reading { // others may read a rule that is being written
		*value = has
	}
}

// integer is the type of a number.
type integer interface{ ~int64 | ~uint64 }

func numberField[N integer](c *coder, key string, n *N) {
	if c.key(key, *n != 0) {
		number(c, n)
	}
}

func number[N integer](c *coder, n *N) {
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

func (c *coder) durationField(key string, d *time.Duration) {
	if c.key(key, *d != 0) {
		c.duration(d)
	}
}

// duration codes nanoseconds, or whole seconds with an s.
func (c *coder) duration(d *time.Duration) {
	n := *d
	seconds := !c.reading && n != 0 && n%time.Second == 0
	if seconds {
		n /= time.Second
	}
	number(c, &n)
	if c.key("s", seconds) && c.reading {
		if n *= time.Second; n/time.Second*time.Second != n {
			c.fail("fewer seconds")
		}
	}
	if c.reading {
		*d = n
	}
}

// instant codes a time of the wall clock, and the time since the boot with its sign.
func (c *coder) instant(at *lock.Instant) {
	var wall int64
	if !c.reading && !at.Wall.IsZero() {
		wall = at.Wall.UnixNano()
	}
	if number(c, &wall); c.reading && wall != 0 {
		at.Wall = time.Unix(0, wall).UTC()
	}
	if plus := c.key("+", at.Boot > 0); plus || at.Boot < 0 || c.reading && bytes.HasPrefix(c.b, []byte("-")) {
		number(c, &at.Boot)
	}
}

// instantField codes a moment; if it is left out, it is the moment absent.
func (c *coder) instantField(key string, at *lock.Instant, absent lock.Instant) {
	if c.key(key, at.Boot != absent.Boot || !at.Wall.Equal(absent.Wall)) {
		c.instant(at)
	} else if c.reading {
		*at = absent
	}
}

func textField[S ~string](c *coder, key string, s *S) {
	if c.key(key, *s != "") {
		text(c, s)
	}
}

func text[S ~string](c *coder, s *S) {
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

// AppendText appends a text as it is in a line.
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
