package config

import (
	"fmt"
	"reflect"
	"time"
)

// unbuilt lists the keys whose feature this version lacks. They are known, so
// that a file says the same to every version, but may only have the value that
// stands for "off". To build a feature, delete its line here, and give
// [Default], [DefaultRule] and the example the default that it is to have.
var unbuilt = []struct {
	kind    string // as in field
	off     any    // the only value allowed
	feature string
}{
	{"files.on_abort", AbortDiscard, "broken uploads are not kept"},
}

// checkBuilt reports a key that this version could only ignore.
func (c *checker) checkBuilt(f field) {
	for _, u := range unbuilt {
		if u.kind == f.kind && !sameValue(u.off, f.value.Interface()) {
			c.fail(f.key, "not in this version: %s; leave it out or set it to %s", u.feature, literal(u.off))
		}
	}
}

// literal returns a value as a file has it.
func literal(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return fmt.Sprintf("%q", short(v))
	case string:
		return fmt.Sprintf("%q", v)
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.Slice && v.Len() == 0 {
		return "[]"
	}
	return fmt.Sprint(value)
}

// short returns a duration without the zeros that Duration.String ends with: "10m", not "10m0s".
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
