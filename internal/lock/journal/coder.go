package journal

import (
	"bytes"
	"fmt"
	"net/url"
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

// key codes the text before the value of a field, such as `,"token":`. It reports whether the field is present; when it writes,
// that is has.
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
		if c.reading { // others may read a rule that is being written
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
	rest := bytes.TrimLeft(c.b, "-0123456789")
	digits := string(c.b[:len(c.b)-len(rest)])
	c.b = rest
	signed, err := strconv.ParseInt(digits, 10, 64)
	if *n = N(signed); err == nil {
		return
	}
	unsigned, err := strconv.ParseUint(digits, 10, 64)
	if *n = N(unsigned); err != nil {
		c.fail("an invalid number")
	}
}

func appendNumber[N integer](b []byte, n N) []byte {
	if n < 0 {
		return strconv.AppendInt(b, int64(n), 10)
	}
	return strconv.AppendUint(b, uint64(n), 10)
}

// time codes a wall time in nanoseconds since 1970.
func (c *coder) time(key string, t *time.Time) {
	var n int64
	if !c.reading && !t.IsZero() {
		n = t.UnixNano()
	}
	if number(c, key, &n); c.reading && n != 0 {
		*t = time.Unix(0, n).UTC()
	}
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
	decoded, err := url.PathUnescape(string(encoded))
	if !ended || err != nil {
		c.fail("an invalid string")
		return
	}
	*s, c.b = S(decoded), rest
}

func appendText(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	b = append(b, '"')
	done := 0
	for i := range len(s) {
		if !isPlain(s[i]) {
			b = append(append(b, s[done:i]...), '%', hex[s[i]>>4], hex[s[i]&15])
			done = i + 1
		}
	}
	return append(append(b, s[done:]...), '"')
}

func isPlain(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '%' }
