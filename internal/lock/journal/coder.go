package journal

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/ftplockd/ftplockd/internal/lock"
)

// coder writes the fields of a line as JSON, or reads them. The caller names the fields one by one, in the order of the format, so
// one list of them serves for both. A field with its zero value is left out.
type coder struct {
	reading bool
	b       []byte // the line so far, or what is left to read
	err     error  // the first fault in what is read; b is empty then

	// The last second and the last rule, since most lines have the same.
	second    int64
	stamp     []byte // the second as text, with the quotation mark; nil: none
	rule      *lock.Rule
	ruleText  []byte
	ruleFresh bool // ruleText belongs to rule
}

func (c *coder) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%s before the last %d bytes", what, len(c.b)+sumLength)
	}
	c.b = nil
}

// literal codes a text that is always there.
func (c *coder) literal(text string) {
	if !c.key(text, true) {
		c.fail("no " + text)
	}
}

// key codes the text before the value of a field, such as `,"token":`. It reports whether the field is there; for writing, has says so.
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
	if c.key(key, *value) {
		c.literal("true")
		if c.reading { // a rule is shared, and others read it
			*value = true
		}
	}
}

// integer is the type of a number field.
type integer interface {
	~int64 | ~uint32 | ~uint64
}

func number[N integer](c *coder, key string, n *N) {
	if c.key(key, *n != 0) {
		numberValue(c, n)
	}
}

func numberValue[N integer](c *coder, n *N) {
	if !c.reading {
		c.b = appendNumber(c.b, *n)
		return
	}
	end := 0
	for end < len(c.b) && (c.b[end] == '-' || c.b[end] >= '0' && c.b[end] <= '9') {
		end++
	}
	digits := string(c.b[:end])
	c.b = c.b[end:]
	if signed, err := strconv.ParseInt(digits, 10, 64); err == nil {
		*n = N(signed)
	} else {
		unsigned, _ := strconv.ParseUint(digits, 10, 64)
		*n = N(unsigned)
	}
	if string(appendNumber(make([]byte, 0, 20), *n)) != digits {
		c.fail("no number that fits")
	}
}

func appendNumber[N integer](b []byte, n N) []byte {
	if n < 0 {
		return strconv.AppendInt(b, int64(n), 10)
	}
	return strconv.AppendUint(b, uint64(n), 10)
}

// session codes an id in the form of its String, "3-17", without an allocation.
func (c *coder) session(key string, id *lock.SessionID) {
	const bits = 40 // of the session's number, see lock.SessionID
	if !c.key(key, *id != 0) {
		return
	}
	if !c.reading {
		c.b = strconv.AppendUint(append(c.b, '"'), uint64(*id>>bits), 10)
		c.b = strconv.AppendUint(append(c.b, '-'), uint64(*id&(1<<bits-1)), 10)
		c.b = append(c.b, '"')
		return
	}
	var s string
	var err error
	textValue(c, &s)
	if *id, err = lock.ParseSessionID(s); err != nil {
		c.fail("no session")
	}
}

const (
	secondLayout = `"2006-01-02T15:04:05.`
	fraction     = 9 // digits of nanoseconds
)

func (c *coder) time(key string, t *time.Time) {
	if !c.key(key, !t.IsZero()) {
		return
	}
	if c.reading {
		c.readTime(t)
		return
	}
	if second := t.Unix(); second != c.second || c.stamp == nil {
		c.second, c.stamp = second, t.UTC().AppendFormat(c.stamp[:0], secondLayout)
	}
	c.b = append(c.b, c.stamp...)
	c.b = append(c.b, `000000000Z"`...)
	for n, i := t.Nanosecond(), len(c.b)-3; n > 0; n, i = n/10, i-1 {
		c.b[i] = '0' + byte(n%10)
	}
}

func (c *coder) readTime(t *time.Time) {
	if end := len(secondLayout) + fraction + len(`Z"`); len(c.b) >= end && string(c.b[end-2:end]) == `Z"` {
		text := c.b[:len(secondLayout)]
		at, err := time.Unix(c.second, 0).UTC(), error(nil)
		if !bytes.Equal(text, c.stamp) {
			at, err = time.Parse(secondLayout[:len(secondLayout)-1], string(text[:len(text)-1]))
			c.second, c.stamp = at.Unix(), append(c.stamp[:0], text...)
		}
		nanoseconds, nerr := strconv.ParseUint(string(c.b[len(secondLayout):end-2]), 10, 32)
		if err == nil && nerr == nil && text[len(text)-1] == '.' {
			*t = at.Add(time.Duration(nanoseconds))
			c.b = c.b[end:]
			return
		}
		c.stamp = nil
	}
	c.fail("no time")
}

// instant codes a moment as two fields. If they are left out, it is the moment absent.
func (c *coder) instant(timeKey, bootKey string, at *lock.Instant, absent lock.Instant) {
	if c.reading {
		*at = lock.Instant{}
		c.time(timeKey, &at.Wall)
		number(c, bootKey, &at.Boot)
		if *at == (lock.Instant{}) {
			*at = absent
		}
	} else if at.Boot != absent.Boot || !at.Wall.Equal(absent.Wall) {
		c.time(timeKey, &at.Wall)
		number(c, bootKey, &at.Boot)
	}
}

func text[S ~string](c *coder, key string, s *S) {
	if c.key(key, *s != "") {
		textValue(c, s)
	}
}

// textValue codes a JSON string that holds any bytes, since names are bytes and JSON is UTF-8: bytes that are not printable ASCII, and
// '"', '\' and '%', are percent-encoded.
func textValue[S ~string](c *coder, s *S) {
	if !c.reading {
		c.b = appendText(c.b, string(*s))
		return
	}
	c.literal(`"`)
	encoded, rest, ended := bytes.Cut(c.b, []byte(`"`))
	if !ended {
		c.fail("a text without an end")
		return
	}
	decoded := make([]byte, 0, len(encoded))
	for i := 0; i < len(encoded); i++ {
		b := encoded[i]
		switch {
		case b == '%' && i+2 < len(encoded):
			n, err := strconv.ParseUint(string(encoded[i+1:i+3]), 16, 8)
			if err != nil {
				c.fail("no two hexadecimal digits after %")
				return
			}
			b, i = byte(n), i+2
		case !plain(b):
			c.fail("a byte that is not encoded")
			return
		}
		decoded = append(decoded, b)
	}
	*s, c.b = S(decoded), rest
}

func appendText(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	b = append(b, '"')
	done := 0
	for i := range len(s) {
		if !plain(s[i]) {
			b = append(append(b, s[done:i]...), '%', hex[s[i]>>4], hex[s[i]&15])
			done = i + 1
		}
	}
	return append(append(b, s[done:]...), '"')
}

func plain(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '%' }
