package control

import (
	"bytes"
	"strings"
)

// skipTelnet removes the Telnet signals (RFC 854) at the beginning of a line: clients send IAC IP and a data mark before ABOR and
// STAT (RFC 959 section 4.1.3), some of them the data mark without its IAC. Elsewhere such a byte belongs to a file name.
func skipTelnet(line []byte) []byte {
	for len(line) > 0 && line[0] >= 240 {
		line = line[1:]
	}
	return line
}

// parse returns the command in a line without its LF, or the reply to a malformed line. For an empty line it returns neither: some
// clients send one after their data and expect no reply.
func parse(line []byte, tooLong bool) (*Command, Reply) {
	line = bytes.TrimRight(line, "\r") // some clients send CR CR LF
	if len(line) == 0 && !tooLong {
		return nil, Reply{}
	}
	line = skipTelnet(line)
	switch {
	case tooLong:
		return nil, lineTooLong
	case len(line) == 0 || line[0] == ' ': // a client that gets no reply would wait
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

// maxLine is the longest line in bytes, without its end. The library's buffer holds 4,096 bytes with the end; it drops the
// connection without a reply when that is too small.
const maxLine = 4096 - len("\r\n")

// input is a buffer of input that is not executed yet.
type input struct {
	limit   int // longest line in bytes, without its end
	buf     []byte
	r, w    int  // buf[r:w] is not executed
	ahead   int  // the number of bytes after r that lookAhead has seen
	cutting bool // the line is too long; the part before r was dropped
}

const (
	inputSize = 1 << 10  // initial, and while idle: commands are short
	inputMax  = 64 << 10 // the most that is read ahead while a transfer runs or a command waits
)

// next returns the next complete line, without its LF, which is valid until space is called. If tooLong is set, the line is
// longer than the limit, and only its end is returned.
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

// lookAhead yields complete lines without consuming them. It continues after the lines that it yielded before, and stops when
// yield returns false; that line comes again in the next call.
func (in *input) lookAhead(yield func(line []byte) bool) {
	for {
		line, _, ok := bytes.Cut(in.buf[in.r+in.ahead:in.w], []byte("\n"))
		if !ok || !yield(line) {
			return
		}
		in.ahead += len(line) + 1
	}
}

// space returns the free part of the buffer to read into; it is empty if the buffer is full and as large as it may be.
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

// added records n bytes that were read into the result of space, and reports whether they end a line.
func (in *input) added(n int) bool {
	in.w += n
	return bytes.IndexByte(in.buf[in.w-n:in.w], '\n') >= 0
}
