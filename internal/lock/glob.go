package lock

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
)

// nameGlob is a doublestar glob over names: * is any bytes but a slash, ** any number of
// whole elements, ? one character or one byte that is no UTF-8, [a-z] and {a,b} as usual; a
// backslash takes the next character as it is. Letters match in their own case only. A glob
// without a leading slash gets one, so that "**/phone_lock" matches /phone_lock and /a/phone_lock.
type nameGlob string // with a slash at its start, and escaped as names are

// newGlob checks a glob. Its errors describe the fault.
func newGlob(glob string) (nameGlob, error) {
	if glob == "" {
		return "", errors.New("the glob is empty")
	}
	rooted := "/" + strings.TrimPrefix(glob, "/")
	if !doublestar.ValidatePattern(rooted) {
		return "", fmt.Errorf("bad glob %q", glob)
	}
	if strings.Contains(strings.ReplaceAll(rooted, `\\`, ""), `\/`) {
		return "", fmt.Errorf("glob %q escapes a slash, which never stands for anything else", glob)
	}
	for element := range strings.SplitSeq(rooted[1:], "/") {
		if element == "" || element == "." || element == ".." {
			return "", fmt.Errorf("glob %q can match nothing: it has an element %q", glob, element)
		}
	}
	return nameGlob(escape(rooted)), nil
}

// Match reports whether the glob matches the whole name.
func (g nameGlob) Match(n Name) bool {
	return doublestar.MatchUnvalidated(string(g), escape(string(n)))
}

// escape gives each byte that is no UTF-8 a character of its own at the end of Unicode's
// last private area. doublestar reads all of them as U+FFFD, so that any would match any other.
func escape(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 {
			r = 0x10FF00 + rune(s[0])
		}
		b.WriteRune(r)
		s = s[size:]
	}
	return b.String()
}
