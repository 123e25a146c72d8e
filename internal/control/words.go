package control

import (
	"cmp"
	"strings"
	"unicode/utf8"
)

// Reply is a reply to a command. CR, LF and NUL in its texts are sent as '?', so that no file name can forge a line.
//
// A refusal (a code of 400 or more) and a 257 have at most 128 bytes on the wire; a longer text is shortened and ends in
// "...". A refusal is shortened at the front of its path first. The quoted path of a 257 is never shortened: if the path
// alone is too long, the reply is sent whole.
type Reply struct {
	Code int    // three digits, RFC 959 section 4.2
	Path string // comes before the text, followed by ": "; "": none
	Text string // the text of the first line
	// Lines make it a reply of several lines: "code-Text", these lines, then "code End". Lines of MLST and FEAT begin with a
	// space (RFC 3659, RFC 2389). A line that begins with a digit gets a space in front (RFC 959 section 4.2).
	Lines []string
	End   string // the text of the last line if there are Lines; "" is "End"
	// Rows, if it is not nil, produces further lines while they are sent, so that few are buffered; a client that does not read
	// makes it wait. It is called once, also if the connection has ended. It calls line with each line, returns an error of line,
	// and returns the text of the last line, like End. An error ends the connection. Only the driver's replies to commands without a data connection may have Rows.
	Rows func(line func(string) error) (end string, err error)
}

// AppendTo appends the reply as it is sent, without Rows and the line after them.
func (r Reply) AppendTo(b []byte) []byte {
	if len(r.Lines) == 0 && r.Rows == nil {
		return appendLine(b, r.Code, ' ', r.short())
	}
	b = appendLine(b, r.Code, '-', r.Text)
	for _, line := range r.Lines {
		b = appendRow(b, line)
	}
	if r.Rows != nil {
		return b // see sendRows
	}
	return appendLine(b, r.Code, ' ', cmp.Or(r.End, "End"))
}

// appendRow appends a line between the first and the last line of a reply.
func appendRow(b []byte, line string) []byte {
	if line != "" && line[0] >= '0' && line[0] <= '9' {
		b = append(b, ' ')
	}
	return append(appendClean(b, line), '\r', '\n')
}

const (
	// MaxReply is the longest refusal or 257 in bytes: ESP32_FTPClient and FTPClient_Generic read a reply into 128 bytes, and
	// treat a longer refusal as a success.
	MaxReply = 128
	// leastPath is how many bytes of its path a refusal keeps at least.
	leastPath = 16
	// ellipsis marks the place where a text was shortened.
	ellipsis = "..."
)

// short returns the text of a reply of one line, shortened to MaxReply.
func (r Reply) short() string {
	const room = MaxReply - len("550 \r\n")
	text := r.Text
	if r.Path != "" {
		path := r.Path
		if r.Code >= 400 {
			path = cutFront(path, max(room-len(": ")-len(text), leastPath))
		}
		text = path + ": " + text
	}
	switch quoted := quotedLen(text); {
	case r.Code >= 400:
		return cutEnd(text, room)
	case r.Code == 257 && quoted <= room:
		return text[:quoted] + cutEnd(text[quoted:], room-quoted)
	}
	return text
}

// quotedLen returns the length of the quoted path (RFC 959 appendix II), with its quotes, at the beginning of a text, or 0. No text has a
// quote after the path: Net::FTP takes everything up to the last quote for the path.
func quotedLen(text string) int {
	if text == "" || text[0] != '"' {
		return 0
	}
	return strings.LastIndexByte(text, '"') + 1
}

// cutEnd shortens a text to room bytes at its end, between two words: half a number would be another number.
func cutEnd(text string, room int) string {
	if len(text) <= room {
		return text
	}
	n := max(room-len(ellipsis), 0)
	if space := strings.LastIndexByte(text[:n+1], ' '); space >= n-longestNumber {
		n = max(space, 0)
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	if text = strings.TrimRight(text[:n], " ,;:"); text == "" {
		return ""
	}
	return text + ellipsis
}

// longestNumber is the length of the longest number in a reply, with punctuation.
const longestNumber = 24

// cutFront shortens a path to room bytes at its front.
func cutFront(path string, room int) string {
	if len(path) <= room {
		return path
	}
	from := len(path) - room + len(ellipsis)
	for from < len(path) && !utf8.RuneStart(path[from]) {
		from++
	}
	return ellipsis + path[from:]
}

func appendLine(b []byte, code int, separator byte, text string) []byte {
	b = append(b, '0'+byte(code/100%10), '0'+byte(code/10%10), '0'+byte(code%10), separator)
	return append(appendClean(b, text), '\r', '\n')
}

// appendClean appends text with '?' for the bytes that would end or cut a line.
func appendClean[T string | []byte](b []byte, text T) []byte {
	from := len(b)
	b = append(b, text...)
	for i := from; i < len(b); i++ {
		if c := b[i]; c == '\r' || c == '\n' || c == 0 {
			b[i] = '?'
		}
	}
	return b
}
