package event

import (
	"bytes"
	"fmt"
	"io"
	"math"
)

// Xferlog returns a sink that writes a line for each transfer in the format of wu-ftpd's xferlog(5). It calls failed with the error of a
// write.
func Xferlog(w io.Writer, failed func(error)) Sink {
	return func(batch []Event) {
		var lines bytes.Buffer
		for _, e := range batch {
			xferline(&lines, e)
		}
		if _, err := lines.WriteTo(w); err != nil {
			failed(err)
		}
	}
}

// xferline writes the line of a transfer, and nothing for other events.
func xferline(w io.Writer, e Event) {
	direction, whole := "i", "c"
	switch e.Kind {
	case Publish:
	case Discard:
		whole = "i"
	case Download:
		direction = "o"
		if e.Reason != "" {
			whole = "i"
		}
	default:
		return
	}
	mode := "b"
	if e.ASCII {
		mode = "a"
	}
	seconds := max(1, int64(math.Round(e.Took.Seconds())))
	fmt.Fprintf(w, "%s %d %s %d %s %s _ %s r %s ftp 0 * %s\n",
		e.Time.Local().Format("Mon Jan _2 15:04:05 2006"), seconds, e.Remote, e.Bytes, field(e.Path), mode,
		direction, field(e.Account), whole)
}

// field replaces blanks and control characters by underscores, as wu-ftpd does. Other bytes stay, also if they are not UTF-8.
func field(text string) string {
	if text == "" {
		return "?"
	}
	b := []byte(text)
	for i, c := range b {
		if c <= ' ' || c == 0x7f {
			b[i] = '_'
		}
	}
	return string(b)
}
