package control

// transfer is what is known of the transfer that the library runs on a goroutine of its
// own, from the replies that it writes. Three facts of ftpserverlib v0.32.3 are behind it:
//
// The first reply of a transfer is 1xx or a final one, and until it is written ABOR may
// take away the data connection so that the transfer ends without any reply
// (handleABOR, TransferOpen), or block until the data connection stands. Therefore
// urgent commands are kept back until then.
//
// After it, a transfer and an ABOR have two final replies together: the transfer's own
// and 226, or 426 and 226, and then the transfer ends in silence (TransferClose). A STAT
// has one and cannot be interrupted. So counting final replies tells when all are written.
//
// Neither tells that the goroutine is through. A NOOP does: the library waits for the goroutine
// before it executes it (handleCommand, transferWg). Its reply is kept from the client.
type transfer struct {
	finals   int    // final replies still to come
	started  bool   // the first reply was written
	unproved bool   // the goroutine may still run
	proving  bool   // the NOOP is in the library
	multi    int    // the code of the reply of several lines that is being written, or 0
	keep     bool   // the last final reply is for an ABOR that overtook others: keep it
	kept     []byte // that reply
}

// begin notes that a transfer was handed to the library.
func (t *transfer) begin() { *t = transfer{finals: 1, unproved: true} }

// urged notes that an urgent command was handed to the library; keep: its reply is to be kept.
func (t *transfer) urged(keep bool) {
	t.finals++
	t.keep = keep
}

// running reports whether replies are still to come.
func (t *transfer) running() bool { return t.finals > 0 }

// fate is what becomes of a line of the library.
type fate uint8

const (
	sendLine fate = iota
	dropLine
	keepLine
)

// line takes note of a line that the library writes, before it is sent.
func (t *transfer) line(text []byte) (code int, final bool, f fate) {
	code, final = t.classify(text)
	switch {
	case t.proving && string(text) == "200 OK":
		f = dropLine
	case final && t.keep && t.finals == 1:
		f = keepLine
	}
	return code, final, f
}

// classify returns the code of the reply that the line belongs to, and whether it is the
// last line of a final reply (RFC 959 section 4.2).
func (t *transfer) classify(text []byte) (code int, final bool) {
	code, last := replyCode(text)
	if t.multi != 0 {
		if code != t.multi || !last {
			return t.multi, false
		}
		t.multi = 0
	} else if code != 0 && !last {
		t.multi = code
	}
	return code, last && code >= 200
}

// replyCode returns the code that a line begins with, 0 if it begins with none, and
// whether a space or nothing follows, as in the last line of a reply.
func replyCode(text []byte) (code int, last bool) {
	if len(text) < 3 {
		return 0, false
	}
	for _, b := range text[:3] {
		if b < '0' || b > '9' {
			return 0, false
		}
		code = code*10 + int(b-'0')
	}
	if len(text) == 3 || text[3] == ' ' {
		return code, true
	}
	if text[3] != '-' {
		return 0, false
	}
	return code, false
}

// sent takes note that a line was sent, or kept. It reports whether that brought the
// transfer further: its first reply, or the last one.
func (t *transfer) sent(final bool) (further, over bool) {
	if !t.running() {
		return false, false
	}
	further = !t.started
	t.started = true
	if final {
		t.finals--
	}
	return further || t.finals == 0, t.finals == 0
}
