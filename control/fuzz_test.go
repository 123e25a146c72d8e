package control

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script is a connection whose input comes in the pieces that it was made of.
type script struct {
	net.Conn
	pieces  [][]byte
	err     error // what ends it; nil: io.EOF
	replies bytes.Buffer
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

func (s *script) Write(p []byte) (int, error)      { return s.replies.Write(p) }
func (s *script) Close() error                     { return nil }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// recorder answers and passes by turns and remembers the lines.
type recorder struct {
	lines []string
	ended int
}

func (r *recorder) Command(_ *Conn, cmd Command) Decision {
	r.lines = append(r.lines, cmd.Line)
	if len(r.lines)%2 == 0 || len(cmd.Line) > MaxPass {
		return Answer(Reply{Code: 200, Text: cmd.Line})
	}
	return Pass(cmd.Line)
}
func (r *recorder) Reply(*Conn, int, []byte) ([]byte, bool) { return nil, false }
func (r *recorder) Ended(*Conn, Reason)                     { r.ended++ }

// Where no socket can be asked what was acknowledged, only the error counts.
func TestAResetUndoesWithoutASocketToo(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{{syscall.ECONNRESET, true}, {syscall.ETIMEDOUT, true}, {io.EOF, false}} {
		undone := false
		opts := Options{NewHandler: func(*Conn) Handler { return nil }}.withDefaults()
		c := newConn(&script{pieces: [][]byte{[]byte("MKD a\r\n")}, err: tc.err}, 1, &opts, nil, func(*Conn) {})
		c.start(granter{func() { undone = true }})
		if _, err := c.Read(make([]byte, 4096)); err != io.EOF || undone != tc.want {
			t.Errorf("%v: %v, undone: %v", tc.err, err, undone)
		}
	}
}

type granter struct{ undelivered func() }

func (g granter) Command(*Conn, Command) Decision {
	return Answer(Reply{Code: 257, Undelivered: g.undelivered})
}
func (granter) Reply(*Conn, int, []byte) ([]byte, bool) { return nil, false }
func (granter) Ended(*Conn, Reason)                     {}

// commands is what is to be made of a stream, written as plainly as can be.
func commands(stream string, limit int) (lines []string, replies int) {
	for {
		line, rest, ok := strings.Cut(stream, "\n")
		if !ok {
			return lines, replies
		}
		stream = rest
		replies++
		if len(strings.TrimSuffix(line, "\r")) > limit {
			continue
		}
		line = strings.TrimRight(line, "\r")
		line = string(skipTelnet([]byte(line)))
		if line != "" && line[0] != ' ' && !strings.ContainsAny(line, "\x00\r") {
			lines = append(lines, line)
		}
	}
}

func FuzzInput(f *testing.F) {
	f.Add([]byte("NOOP\r\nPWD\nMKD x"), uint8(3))
	f.Add([]byte("\xff\xf4\xff\xf2ABOR\r\n\r\n\r\n \r\nX\x00Y\r\nA\rB\n"), uint8(1))
	f.Add([]byte("STOR x\r\nABOR\r\n"+strings.Repeat("x", 200)+"\r\nNOOP\r\n"), uint8(7))
	f.Add([]byte(strings.Repeat("x", 99)+"\r\n"+strings.Repeat("y", 100)+"\r\r\n"+strings.Repeat("z", 101)+"\n"), uint8(100))
	f.Add([]byte("0\n"+strings.Repeat("x", 100)+"\r\r\n"), uint8(28))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		const limit = 100
		opts := Options{NewHandler: func(*Conn) Handler { return nil }, MaxLine: limit}.withDefaults()
		s := &script{pieces: slices.Collect(slices.Chunk(stream, int(step)+1))}
		rec := &recorder{}
		c := newConn(s, 1, &opts, nil, func(*Conn) {})
		c.start(rec)
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err == io.EOF {
				break
			}
			if err != nil || !bytes.HasSuffix(buf[:n], []byte("\r\n")) || bytes.Count(buf[:n], []byte("\n")) != 1 {
				t.Fatalf("the library got %q, %v", buf[:n], err)
			}
			_, _ = io.WriteString(c, "250 done\r\n")
		}
		_ = c.Close()
		want, replies := commands(string(stream), limit)
		if !slices.Equal(rec.lines, want) {
			t.Errorf("executed %q\nwant %q", rec.lines, want)
		}
		if got := bytes.Count(s.replies.Bytes(), []byte("\r\n")); got != replies {
			t.Errorf("%d replies to %d lines", got, replies)
		}
		if rec.ended != 1 {
			t.Errorf("the end was told %d times", rec.ended)
		}
	})
}
