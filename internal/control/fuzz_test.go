package control

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script is a connection that returns its input in given pieces.
type script struct {
	net.Conn
	pieces  [][]byte
	err     error // after the last piece; nil: io.EOF
	replies bytes.Buffer
	six     bool // over IPv6
}

func scripted(lines ...string) *script {
	return &script{pieces: [][]byte{[]byte(strings.Join(lines, "\r\n") + "\r\n")}}
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 && s.err != nil {
		return 0, s.err
	}
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *script) addr(port int) net.Addr {
	if s.six {
		return &net.TCPAddr{IP: net.IPv6loopback, Port: port}
	}
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
}

func (s *script) Write(p []byte) (int, error)      { return s.replies.Write(p) }
func (s *script) Close() error                     { return nil }
func (s *script) RemoteAddr() net.Addr             { return s.addr(4000) }
func (s *script) LocalAddr() net.Addr              { return s.addr(21) }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// connected is a Conn over a script, logged in, and its handler.
func connected(s *script, o Options) (*Conn, *handler) {
	if o.Policy == nil {
		o.Policy = func() Policy { return Policy{Active: true} }
	}
	o.Logger = slog.New(slog.DiscardHandler)
	o.Ports = NewPorts(PortOptions{Range: func() (uint16, uint16) { return 20000, 20009 }})
	h := &handler{over: make(chan Reason, 1)}
	o.NewHandler = func(c *Conn) Handler { h.c = c; return h }
	server := NewServer(o)
	c := newConn(server, s, 1, nil)
	server.conns[c] = false
	server.countLocked(NetworkOf(c.client), 1, 1)
	c.LogIn("user")
	return c, h
}

// ask sends lines, and returns the first line that the library gets and all replies of this package.
func ask(o Options, lines ...string) (pass, replies string) {
	s := scripted(lines...)
	c, _ := connected(s, o)
	buf := make([]byte, 4096)
	n, _ := c.Read(buf)
	return string(buf[:n]), s.replies.String()
}

// The rows of a reply are produced, and their source is closed, also if the first line of the reply could not be sent.
func TestRowsEndAfterAFailedWrite(t *testing.T) {
	c, _ := connected(scripted("STAT a"), Options{})
	if _, err := c.Read(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	c.wire.failed = syscall.ECONNRESET
	var ended error
	c.Command().Reply(Reply{Code: 213, Text: "Status", Rows: func(line func(string) error) (string, error) {
		ended = line("row")
		return "", ended
	}})
	_, _ = io.WriteString(c, "213 End\r\n")
	if ended != syscall.ECONNRESET {
		t.Errorf("the first row returned %v", ended)
	}
}

// A grant that was written is not undone if the system does not report acknowledgements.
func TestAGrantStandsWhereTheSystemReportsNothing(t *testing.T) {
	for _, failure := range []error{syscall.ECONNRESET, syscall.ETIMEDOUT, io.EOF} {
		lost := false
		s := scripted("MKD a")
		s.err = failure
		c, _ := connected(s, Options{})
		buf := make([]byte, 4096)
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != "MKD a\r\n" {
			t.Fatalf("%q, %v", buf[:n], err)
		}
		c.Command().Lost(func() { lost = true })
		_, _ = io.WriteString(c, "257 done\r\n")
		if _, err := c.Read(buf); err != io.EOF || lost {
			t.Errorf("%v: %v, lost: %v", failure, err, lost)
		}
	}
}

// wellFormed is a plain model of the parser: it returns the lines of a stream that are commands, and the number of all replies.
func wellFormed(stream string, limit int) (lines []string, replies int) {
	for {
		line, rest, ok := strings.Cut(stream, "\n")
		if !ok {
			return lines, replies
		}
		stream = rest
		if len(strings.TrimSuffix(line, "\r")) > limit {
			replies++
			continue
		}
		line = strings.TrimRight(line, "\r")
		if line != "" {
			replies++
		}
		line = string(skipTelnet([]byte(line)))
		if line != "" && line[0] != ' ' && !strings.ContainsAny(line, "\x00\r") {
			lines = append(lines, line)
		}
	}
}

// finalReplies counts the replies in a stream (RFC 959 section 4.2). It returns false if the stream is malformed.
func finalReplies(stream string) (n int, ok bool) {
	within := ""
	for line := range strings.Lines(stream) {
		line, terminated := strings.CutSuffix(line, "\r\n")
		if !terminated || strings.ContainsAny(line, "\r\n\x00") {
			return n, false
		}
		code, more := replyCode([]byte(line))
		switch {
		case within != "" && !strings.HasPrefix(line, within+" "):
		case within != "":
			within = ""
			n++
		case code < 200 || code > 599 || len(line) < 4:
			return n, false
		case more:
			within = line[:3]
		default:
			n++
		}
	}
	return n, within == ""
}

func FuzzInput(f *testing.F) {
	f.Add([]byte("NOOP\r\nPWD\nMKD x"), uint8(3))
	f.Add([]byte("\xff\xf4\xff\xf2ABOR\r\n\r\n\r\n \r\nX\x00Y\r\nA\rB\n"), uint8(1))
	f.Add([]byte("STOR x\r\nABOR\r\n"+strings.Repeat("x", 200)+"\r\nNOOP\r\n"), uint8(7))
	f.Add([]byte(strings.Repeat("x", 99)+"\r\n"+strings.Repeat("y", 100)+"\r\r\n"+strings.Repeat("z", 101)+"\n"), uint8(100))
	f.Add([]byte("0\n"+strings.Repeat("x", 100)+"\r\r\n"), uint8(28))
	f.Add([]byte("STAT\r\nHELP\r\nFEAT\r\nHELP mkd\r\nMKD a\r\nAUTH TLS\r\nUSER \r\n"), uint8(9))
	f.Add([]byte("ALLO \t\r\nEPRT \x80\r\nTYPE \t\r\nPORT ,,,,,\r\nREST -\r\nMDTM 20200101000000 \r\nXCRC \"\r\nOPTS \t\r\nEPSV \t\r\nMFMT  \n"), uint8(200))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		const limit = 100
		s := &script{pieces: slices.Collect(slices.Chunk(stream, int(step)+1))}
		c, h := connected(s, Options{})
		c.in.limit = limit
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err == io.EOF {
				break
			}
			got := string(buf[:n])
			if err != nil || !strings.HasSuffix(got, "\r\n") || strings.Count(got, "\n") != 1 {
				t.Fatalf("the library got %q, %v", got, err)
			}
			for line := range strings.Lines(got) {
				verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(line)), " ")
				if c.server.verbs[verb] == nil {
					t.Fatalf("the library got %q", got)
				}
				_, _ = io.WriteString(c, "250-done\r\n 250 with it\r\n250 done\r\n")
			}
		}
		_ = c.Close()
		want, replies := wellFormed(string(stream), limit)
		if !slices.Equal(h.commands, want) {
			t.Errorf("executed %q\nwant %q", h.commands, want)
		}
		if got, ok := finalReplies(s.replies.String()); got != replies || !ok {
			t.Errorf("%d replies to %d lines, well-formed: %v\n%s", got, replies, ok, s.replies.String())
		}
		if strings.Contains(s.replies.String(), "internal error") {
			t.Error("a command panicked")
		}
		if len(h.over) != 1 || h.begun != 0 {
			t.Errorf("Ended was called %d times, %d commands did not end", len(h.over), h.begun)
		}
	})
}
