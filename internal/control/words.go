package control

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// Reply is what the client is told. The bytes CR, LF and NUL in its texts are sent as '?', so that no file name can
// forge a line.
//
// A refusal (a code of 400 or more) and a 257 have at most 128 bytes on the wire; a longer text is shortened and ends in
// "...". Of a refusal the path is shortened first, at its front. The quoted path of a 257 is never shortened: if the path
// alone is longer, the reply is sent whole.
type Reply struct {
	Code int    // three digits, RFC 959 section 4.2
	Path string // what a refusal is about; it stands before the text, with ": " between them; "": nothing
	Text string // the text of the first line
	// Lines, if there are any, make it a reply of several lines: "code-Text", these as they are (MLST and FEAT want one
	// space in front: RFC 3659, RFC 2389), then "code End". A line that begins with a digit gets a space in front
	// (RFC 959 section 4.2).
	Lines []string
	End   string // the text of the last line if there are Lines; "" is "End"
	// Rows, if it is not nil, makes more lines behind Lines while they are sent, so that none but the last few are held: a client
	// that does not read makes it wait. It calls line with each, returns the error of line, and returns the text of the last
	// line, like End. An error ends the connection. It is for replies that the driver says to commands without a data connection.
	Rows func(line func(string) error) (end string, err error)
}

// AppendTo appends the reply as it goes over the wire, but for Rows and the line behind them.
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

// appendRow appends a line between the first and the last one.
func appendRow(b []byte, line string) []byte {
	if line != "" && line[0] >= '0' && line[0] <= '9' {
		b = append(b, ' ')
	}
	return append(appendClean(b, line), '\r', '\n')
}

const (
	// maxReply is how many bytes a refusal and a 257 have on the wire: ESP32_FTPClient and FTPClient_Generic read a
	// reply into 128 bytes, and take a longer refusal for a success.
	maxReply = 128
	// leastPath is how many bytes of its path a refusal keeps, however long its text is.
	leastPath = 16
	// ellipsis stands where something was cut off.
	ellipsis = "..."
)

// short returns the text of a reply of one line, shortened if the reply would be too long.
func (r Reply) short() string {
	const room = maxReply - len("550 \r\n")
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

// quotedLen returns how many bytes the quoted path has that a text begins with (RFC 959 appendix II), its quotes
// included; 0 if there is none.
func quotedLen(text string) int {
	if text == "" || text[0] != '"' {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] != '"':
		case i+1 < len(text) && text[i+1] == '"':
			i++
		default:
			return i + 1
		}
	}
	return 0
}

// cutEnd shortens a text at its end, if need be, between two words: half a number would be another number.
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

// longestNumber is how many bytes a number in a reply may have, with what stands around it.
const longestNumber = 24

// cutFront shortens a path at its front, if need be.
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

// Write takes reply lines of the library. It never reports a failure: the library could do no more than log it, and
// Read tells it of the end.
func (c *Conn) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		c.libraryLine(bytes.TrimRight(line, "\r\n"))
	}
	return len(p), nil
}

// libraryLine sends a reply line of the library, or the driver's words in its place. The final reply of a transfer ends the
// command, once its handle is closed, too: the library executes it on a goroutine of its own, so no Read tells when it is
// over.
func (c *Conn) libraryLine(line []byte) {
	code, more := replyCode(line)
	final := code >= 200 && !more // a line within a reply of several has no code, or is marked (RFC 959 section 4.2)
	if code/100 == 1 {
		c.CatchUp(quitPatience) // a QUIT that has arrived came before this reply
	}
	c.mu.Lock()
	cmd := c.current
	if cmd != nil && cmd.unsaid {
		cmd.unsaid = !final
		c.mu.Unlock()
		return
	}
	say := cmd.words(code, final, line)
	c.mu.Unlock()

	if final && cmd != nil && !cmd.Transfers() {
		c.handler.End(cmd) // before the client can do anything else
	}
	var err error
	if len(say) > 0 {
		err = c.send(say)
	}
	if !final || cmd == nil {
		return
	}
	if r := cmd.final; err == nil && r != nil && r.Rows != nil {
		err = c.sendRows(r)
	}
	c.delivered(cmd.lost, err)
	if cmd.code == 421 { // RFC 959 section 4.2: the connection is closed
		c.give(order{why: ReasonClosed})
	}
	if cmd.Transfers() {
		cmd.Release()
	}
}

// quitPatience is how long the 1xx of a transfer waits for the reader of commands to look at what has arrived.
const quitPatience = 20 * time.Millisecond

var internalError = Reply{Code: 451, Text: "internal error"}

// replyCode returns the code that a line begins with, 0 if it begins with none, and whether more lines follow.
func replyCode(line []byte) (code int, more bool) {
	if len(line) < 3 {
		return 0, false
	}
	for _, b := range line[:3] {
		if b < '0' || b > '9' {
			return 0, false
		}
		code = code*10 + int(b-'0')
	}
	return code, len(line) > 3 && line[3] == '-'
}

// words returns what is sent for a line of the library. Called with Conn.mu held.
func (cmd *Command) words(code int, final bool, line []byte) []byte {
	if cmd == nil { // the greeting
		return append(appendClean(nil, line), '\r', '\n')
	}
	if code == 500 && len(line) > 4 && bytes.HasPrefix(line[4:], []byte("Unhandled internal error")) {
		// The library has recovered from a panic, and closes no handle (client_handler.go:646).
		cmd.final, cmd.held = &internalError, 1
	}
	var said *Reply
	switch {
	case code/100 == 1:
		said, cmd.begun = cmd.opening, true
	case !final && (cmd.final != nil || cmd.verb.is(oneLine)):
		return nil // a line before the final one, which is said otherwise
	case final && cmd.final != nil:
		said = cmd.final
	case final:
		if r, ok := cmd.verb.instead[code]; ok {
			said = &r
		}
	}
	if said != nil {
		code, line = said.Code, said.AppendTo(nil)
	} else if final && len(line) > len("550 ") {
		line = Reply{Code: code, Text: string(line[len("550 "):])}.AppendTo(nil)
	} else {
		line = append(appendClean(make([]byte, 0, len(line)+2), line), '\r', '\n')
	}
	if final {
		cmd.code, cmd.text = code, line
	}
	return line
}

// rowsMax is how many bytes of Rows are held, but for the last row.
const rowsMax = 16 << 10

// sendRows sends the rows of a reply and its last line. It gives up when the connection is to end.
func (c *Conn) sendRows(r *Reply) error {
	var b []byte
	end, err := r.Rows(func(line string) error {
		if b = appendRow(b, line); len(b) < rowsMax {
			return nil
		}
		if _, o := c.state(); o != nil {
			return errEnding
		}
		err := c.send(b)
		b = b[:0]
		return err
	})
	if err != nil {
		c.give(order{why: ReasonClosed}) // unless it ends for another reason
		return err
	}
	return c.send(appendLine(b, r.Code, ' ', cmp.Or(end, "End")))
}

var errEnding = errors.New("the connection ends")

// answer sends a reply that the library has no part in.
func (c *Conn) answer(r Reply) { _ = c.send(r.AppendTo(nil)) }

// send writes whole lines. If it cannot, Read ends the connection.
func (c *Conn) send(lines []byte) error {
	c.handler.Said(lines)
	_, err := c.transport().Write(lines)
	if err != nil {
		c.give(order{why: c.broken(err)})
	}
	return err
}
