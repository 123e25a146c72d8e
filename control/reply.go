package control

// Reply is what the client is told. The bytes CR, LF and NUL in its texts are sent as
// '?', so that no name of a file can forge a line.
type Reply struct {
	Code int    // three digits, RFC 959 section 4.2
	Text string // the text of the first line
	// Lines, if there are any, make it a reply of several lines: "code-Text", these as
	// they are (MLST and FEAT want one space in front: RFC 3659, RFC 2389), then "code
	// End". One that begins with a digit gets a space in front (RFC 959 section 4.2).
	Lines []string
	End   string // the text of the last line if there are Lines; "" is "End"
	// Undelivered, if set, is called at most once, before Handler.Ended, if the client
	// cannot have got the reply: it could not be written, or the connection was reset
	// before another line arrived, or ended otherwise with the reply unacknowledged by
	// the client's TCP. Any complete line that arrives after the reply was written ends
	// the matter. A reply that was acknowledged and never read by the program is not noticed.
	Undelivered func()
}

// AppendTo appends the reply as it goes over the wire.
func (r Reply) AppendTo(b []byte) []byte {
	if len(r.Lines) == 0 {
		return appendLine(b, r.Code, ' ', r.Text)
	}
	b = appendLine(b, r.Code, '-', r.Text)
	for _, line := range r.Lines {
		if line != "" && line[0] >= '0' && line[0] <= '9' {
			b = append(b, ' ')
		}
		b = append(appendClean(b, line), '\r', '\n')
	}
	end := r.End
	if end == "" {
		end = "End"
	}
	return appendLine(b, r.Code, ' ', end)
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
