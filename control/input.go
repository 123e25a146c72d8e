package control

import "bytes"

// input is what was read and not acted on yet.
type input struct {
	limit int // bytes that a line may have, without its end

	buf     []byte
	r, w    int   // buf[r:w] is unread
	scanned int   // so many bytes behind r hold no LF
	ahead   int   // so many bytes behind r were searched for an ABOR
	at      int64 // where in the stream buf[r] is
	cutting bool  // in the middle of a line that is too long; the part before r is thrown away
}

const (
	inputSize = 1 << 10  // the buffer at first: commands are short
	inputIdle = 4 << 10  // an empty buffer above that is given back
	inputMax  = 64 << 10 // how far is read ahead of a running transfer
)

// next returns the next complete line, without its LF, and where in the stream it began.
// The line is valid until space is called. Of one that is longer than the limit only that
// is told, when its end has come: a line is acted on only when it is complete.
func (in *input) next() (line []byte, at int64, tooLong, ok bool) {
	unread := in.buf[in.r:in.w]
	i := bytes.IndexByte(unread[in.scanned:], '\n')
	if i < 0 {
		in.scanned = len(unread)
		if in.cutting || len(unread) > in.limit+len("\r") {
			in.cutting = true
			in.consume(len(unread))
		}
		return nil, 0, false, false
	}
	end := in.scanned + i
	line, at = unread[:end], in.at
	in.consume(end + 1)
	tooLong = in.cutting || in.exceeds(line)
	in.cutting = false
	return line, at, tooLong, true
}

// exceeds reports whether the line, without its LF, is too long.
func (in *input) exceeds(line []byte) bool {
	return len(bytes.TrimSuffix(line, []byte("\r"))) > in.limit
}

func (in *input) consume(n int) {
	in.r += n
	in.at += int64(n)
	in.scanned = 0
	in.ahead = max(in.ahead-n, 0)
}

// space returns where to read to; nil if the buffer is as large as it may become.
func (in *input) space(most int) []byte {
	if in.r == in.w {
		in.r, in.w = 0, 0
		if len(in.buf) > inputIdle || in.buf == nil {
			in.buf = make([]byte, inputSize)
		}
		return in.buf
	}
	if in.w == len(in.buf) && in.r > 0 {
		in.w = copy(in.buf, in.buf[in.r:in.w])
		in.r = 0
	}
	if in.w == len(in.buf) {
		if len(in.buf) >= most {
			return nil
		}
		larger := make([]byte, min(2*len(in.buf), most))
		copy(larger, in.buf)
		in.buf = larger
	}
	return in.buf[in.w:]
}

// added notes that n bytes were read to what space returned, and reports whether they end a line.
func (in *input) added(n int) bool {
	in.w += n
	return bytes.IndexByte(in.buf[in.w-n:in.w], '\n') >= 0
}

// peek returns the complete line that begins so many bytes behind the next one, and where
// the one after it begins.
func (in *input) peek(offset int) (line []byte, next int, ok bool) {
	unread := in.buf[in.r+offset : in.w]
	i := bytes.IndexByte(unread, '\n')
	if i < 0 {
		return nil, offset, false
	}
	return unread[:i], offset + i + 1, true
}

// has reports whether one of the complete lines is the command verb.
func (in *input) has(verb string) bool {
	line, next, ok := in.peek(0)
	for ; ok; line, next, ok = in.peek(next) {
		if verbOf(line) == verb {
			return true
		}
	}
	return false
}
