package harness

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// transfer is what a line of a transcript has begun. The zero value is a command without a transfer.
type transfer struct {
	upload   io.Closer    // its data connection
	download chan outcome // gets a value at the end of a download
}

// outcome has the results of Execute.
type outcome struct {
	reply   Reply
	content string
	err     error
}

// Play executes a line of a transcript and returns an error if the server does not answer as the line says:
//
//	MKD /x => 257 *             a command and its reply, as Fits has it: its first line, or all of it
//	STOR /f <<< new => 226 *    a command with an upload, see Execute
//	RETR /f => 226 * >>> new    a command with a download, and its content
//	retr /f => 425 *            in lower case: without a data connection
//	MKD /x ...                  a command whose reply comes later; for an upload, all but the end of its data connection
//	=> 257 *                    that reply; of an upload, the end before it
//
// \r, \n, \" and \x00 are bytes.
func (s *Session) Play(line string) error {
	sent, want, now := strings.Cut(" "+line, " => ")
	if !now {
		var later bool
		if sent, later = strings.CutSuffix(sent, " ..."); !later {
			return fmt.Errorf("%q has neither a reply (=>) nor dots (...)", line)
		}
	}
	command, content, _ := strings.Cut(strings.TrimPrefix(sent, " "), " <<< ")
	command, content = Unescape(command), Unescape(content)
	if !now {
		return s.begin(command, content)
	}
	var got outcome
	if command == "" {
		got = s.finish()
	} else {
		got.reply, got.content, got.err = s.Execute(command, content)
	}
	if got.err != nil {
		return fmt.Errorf("%.200s: %w", line, got.err)
	}
	want, wantContent, _ := strings.Cut(want, " >>> ")
	reply := got.reply.String()
	if first, _, _ := strings.Cut(reply, "\n"); !Fits(Unescape(want), first) && !Fits(Unescape(want), reply) {
		return fmt.Errorf("%s\n got: %q\nwant: %q", line, reply, want)
	}
	if !Fits(Unescape(wantContent), got.content) {
		return fmt.Errorf("%s\n got content: %q\nwant content: %q", line, got.content, wantContent)
	}
	return nil
}

// begin sends a command, and the content of an upload.
func (s *Session) begin(command, content string) error {
	verb, _, _ := strings.Cut(command, " ")
	switch {
	case uploads[verb]:
		data, err := s.Open(command)
		if err != nil {
			return err
		}
		s.begun.upload = data
		_, err = io.WriteString(data, content)
		return err
	case downloads[verb]:
		done := make(chan outcome, 1)
		go func() {
			r, content, err := s.Execute(command, "")
			done <- outcome{r, content, err}
		}()
		s.begun.download = done
		return nil
	}
	return s.Send(command)
}

// finish ends an upload under way, and returns the reply to the command that begin sent.
func (s *Session) finish() (o outcome) {
	begun := s.begun
	s.begun = transfer{}
	if begun.download != nil {
		return <-begun.download
	}
	if begun.upload != nil {
		begun.upload.Close()
	}
	o.reply, o.err = s.ReadReply()
	return o
}

var escape = regexp.MustCompile(`\\(?:[rn"]|x[0-9a-f]{2})`)

// Unescape replaces \r, \n, \" and \x00 by bytes.
func Unescape(text string) string {
	return escape.ReplaceAllStringFunc(text, func(e string) string {
		b, _, _, _ := strconv.UnquoteChar(e, '"')
		return string([]byte{byte(b)})
	})
}

// Fits reports whether a text matches a pattern, in which * is any text and # a number.
func Fits(pattern, text string) bool {
	pattern = strings.NewReplacer(`\*`, `.*`, `#`, `[0-9]+`).Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString(text)
}
