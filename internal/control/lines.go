package control

import (
	"bytes"
	"strings"
)

// skipTelnet returns the line without the Telnet sequences (RFC 854) that it begins with: clients send IAC IP and a data
// mark before ABOR and STAT (RFC 959 section 4.1.3), some of them the data mark without its IAC. Anywhere else such a byte
// is one of a file name.
func skipTelnet(line []byte) []byte {
	const first, will, dont = 240, 251, 254
	for len(line) > 0 && line[0] >= first {
		n := 1
		if will <= line[0] && line[0] <= dont {
			n = 2 // an option follows
		}
		line = line[min(n, len(line)):]
	}
	return line
}

// parse makes a command of a line as it was received, without its LF, or says what is wrong with it. Of an empty line it
// makes none, and nothing is wrong: some clients send one behind their data, and expect no reply.
func parse(line []byte, tooLong bool) (*Command, Reply) {
	line = bytes.TrimRight(line, "\r") // some clients send CR CR LF
	if len(line) == 0 && !tooLong {
		return nil, Reply{}
	}
	line = skipTelnet(line)
	switch {
	case tooLong:
		return nil, lineTooLong
	case len(line) == 0 || line[0] == ' ': // as vsftpd; a client that gets no reply would wait
		return nil, Reply{Code: 500, Text: "no command"}
	case bytes.IndexByte(line, 0) >= 0:
		return nil, Reply{Code: 501, Text: "NUL in a command"}
	case bytes.IndexByte(line, '\r') >= 0: // RFC 959 section 5.3.2: no CR in a string
		return nil, Reply{Code: 501, Text: "CR in a command"}
	}
	text := string(line)
	verb, param, _ := strings.Cut(text, " ")
	return &Command{Verb: strings.ToUpper(verb), Param: param, Line: text}, Reply{}
}

var lineTooLong = Reply{Code: 500, Text: "line too long"}

// maxLine is how many bytes a line may have, without its end: the library's buffer holds 4,096 with the end, and it drops
// the connection without a word when that is too small.
const maxLine = 4096 - len("\r\n")

// input is what was read and not acted on yet.
type input struct {
	limit   int // bytes that a line may have, without its end
	buf     []byte
	r, w    int  // buf[r:w] is unread
	ahead   int  // so many bytes behind r were searched by lookAhead
	cutting bool // in the middle of a line that is too long; the part before r is dropped
}

const (
	inputSize = 1 << 10  // the buffer at first, and of an idle connection: commands are short
	inputMax  = 64 << 10 // how much is read ahead of a running transfer
)

// next returns the next complete line, without its LF. The line is valid until space is called. tooLong says that the
// line is longer than the limit; then only its end has been seen.
func (in *input) next() (line []byte, tooLong, ok bool) {
	line, ok = in.peek()
	if !ok {
		if n := in.w - in.r; in.cutting || n > in.limit+len("\r") {
			in.cutting = true
			in.consume(n)
		}
		return nil, false, false
	}
	in.consume(len(line) + 1)
	tooLong = in.cutting || len(bytes.TrimSuffix(line, []byte("\r"))) > in.limit
	in.cutting = false
	return line, tooLong, true
}

func (in *input) consume(n int) {
	in.r += n
	in.ahead = max(in.ahead-n, 0)
}

// peek returns the next complete line, without its LF and without consuming it.
func (in *input) peek() (line []byte, ok bool) {
	line, _, ok = bytes.Cut(in.buf[in.r:in.w], []byte("\n"))
	return line, ok
}

// lookAhead yields the complete lines behind those that it yielded before, without consuming them, until the function
// returns false; the line that it returned false for comes again the next time.
func (in *input) lookAhead(yield func(line []byte) bool) {
	for {
		line, _, ok := bytes.Cut(in.buf[in.r+in.ahead:in.w], []byte("\n"))
		if !ok || !yield(line) {
			return
		}
		in.ahead += len(line) + 1
	}
}

// space returns where to read to; nothing if as much as possible is unread.
func (in *input) space() []byte {
	in.w = copy(in.buf, in.buf[in.r:in.w])
	in.r = 0
	switch {
	case in.w == 0 && len(in.buf) != inputSize:
		in.buf = make([]byte, inputSize)
	case in.w == len(in.buf) && len(in.buf) < inputMax:
		in.buf = append(in.buf, make([]byte, len(in.buf))...)
	}
	return in.buf[in.w:]
}

// added notes that n bytes were read to what space returned, and reports whether they end a line.
func (in *input) added(n int) bool {
	in.w += n
	return bytes.IndexByte(in.buf[in.w-n:in.w], '\n') >= 0
}
