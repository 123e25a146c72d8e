package journal

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
)

// coder writes the fields of a line as JSON, or reads them. It is told the fields one by one, in the order of the format, so that one list
// of them serves for both. A field with its zero value is left out. Reading goes by that order, which makes it several times as fast as
// encoding/json: a start reads every lock that is held.
type coder struct {
	reading bool
	b       []byte // what is written, or what is left to read
	err     error  // why it cannot be read on; b is empty then
}

func (c *coder) fail(what string) {
	if c.err == nil {
		c.err = fmt.Errorf("%s before the last %d bytes", what, len(c.b)+sumLength)
	}
	c.b = nil
}

// optional codes what is there or not. It reports whether it is: when it writes that is what it is told.
func (c *coder) optional(text string, has bool) bool {
	if !c.reading {
		if has {
			c.b = append(c.b, text...)
		}
		return has
	}
	if has = len(c.b) >= len(text) && string(c.b[:len(text)]) == text; has {
		c.b = c.b[len(text):]
	}
	return has
}

// literal codes what is always there.
func (c *coder) literal(text string) {
	if !c.optional(text, true) {
		c.fail("no " + text)
	}
}

// key codes what is before the value of a field, if there is one.
func (c *coder) key(key string, has bool) bool {
	if !c.reading {
		if has {
			c.b = append(append(append(c.b, `,"`...), key...), `":`...)
		}
		return has
	}
	end := len(`,"`) + len(key)
	has = len(c.b) > end+1 && string(c.b[:2]) == `,"` && string(c.b[2:end]) == key && string(c.b[end:end+2]) == `":`
	if has {
		c.b = c.b[end+2:]
	}
	return has
}

func (c *coder) flag(key string, value *bool) {
	if c.key(key, *value) {
		c.literal("true")
		*value = true
	}
}

// integer is what a number may be.
type integer interface {
	~int | ~int64 | ~uint32 | ~uint64
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
	if signed, err := strconv.ParseInt(digits, 10, 64); err == nil {
		*n = N(signed)
	} else {
		unsigned, _ := strconv.ParseUint(digits, 10, 64)
		*n = N(unsigned)
	}
	if again := appendNumber(make([]byte, 0, 20), *n); string(again) != digits {
		c.fail("no number that fits")
	}
}

func appendNumber[N integer](b []byte, n N) []byte {
	if n < 0 {
		return strconv.AppendInt(b, int64(n), 10)
	}
	return strconv.AppendUint(b, uint64(n), 10)
}

func (c *coder) time(t *time.Time) {
	if !c.key("time", !t.IsZero()) {
		return
	}
	if !c.reading {
		c.b = append(t.UTC().AppendFormat(append(c.b, '"'), time.RFC3339Nano), '"')
		return
	}
	var s string
	textValue(c, &s)
	var err error
	if *t, err = time.Parse(time.RFC3339Nano, s); err != nil {
		c.fail("no time")
	}
}

func text[S ~string](c *coder, key string, s *S) {
	if c.key(key, *s != "") {
		textValue(c, s)
	}
}

// textValue codes a JSON string that holds any bytes: those which are not printable ASCII, and '"', '\' and '%', are percent-encoded, as
// names are bytes and JSON is UTF-8.
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
	for i := range len(s) {
		if plain(s[i]) {
			b = append(b, s[i])
		} else {
			b = append(b, '%', hex[s[i]>>4], hex[s[i]&15])
		}
	}
	return append(b, '"')
}

func plain(c byte) bool { return c >= ' ' && c < 0x7f && c != '"' && c != '\\' && c != '%' }
