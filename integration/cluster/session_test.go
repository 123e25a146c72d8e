//go:build linux

package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// session is a control connection. Nothing takes longer than its haste.
type session struct {
	conn    net.Conn
	r       *bufio.Reader
	address string
	haste   time.Duration
}

// reply is a whole reply, the lines of its text joined with "\n".
type reply struct {
	code int
	text string
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.code, r.text) }

// refused is an error that is a reply.
type refused struct{ reply reply }

func (e *refused) Error() string { return e.reply.String() }

// dial connects to an address and logs in.
func dial(address, name string, haste time.Duration) (*session, error) {
	conn, err := net.DialTimeout("tcp", address, haste)
	if err != nil {
		return nil, err
	}
	s := &session{conn, bufio.NewReader(conn), address, haste}
	greeting, err := s.read()
	if err == nil && greeting.code != 220 {
		err = &refused{greeting}
	}
	for _, line := range []string{"USER " + name, "PASS " + password, "TYPE I"} {
		if err == nil {
			_, err = s.ask(line)
		}
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return s, nil
}

// dialAny connects to the first of the addresses that lets it in, as clients do that are told several.
func dialAny(addresses []string, name string, haste time.Duration) (s *session, err error) {
	for _, address := range addresses {
		if s, err = dial(address, name, haste); err == nil {
			return s, nil
		}
	}
	return nil, err
}

// read reads one reply (RFC 959 section 4.2).
func (s *session) read() (reply, error) {
	if err := s.conn.SetDeadline(time.Now().Add(s.haste)); err != nil {
		return reply{}, err
	}
	var r reply
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return r, err
		}
		line = strings.TrimRight(line, "\r\n")
		if r.code == 0 {
			if r.code, err = strconv.Atoi(line[:min(3, len(line))]); err != nil || len(line) < 4 {
				return r, fmt.Errorf("no reply: %q", line)
			}
			r.text = line[4:]
			if line[3] == ' ' {
				return r, nil
			}
			continue
		}
		r.text += "\n" + line
		if strings.HasPrefix(line, strconv.Itoa(r.code)+" ") {
			return r, nil
		}
	}
}

// say sends a command and returns the reply.
func (s *session) say(line string) (reply, error) {
	if err := s.conn.SetDeadline(time.Now().Add(s.haste)); err != nil {
		return reply{}, err
	}
	if _, err := io.WriteString(s.conn, line+"\r\n"); err != nil {
		return reply{}, err
	}
	return s.read()
}

// ask sends a command that must succeed: a reply of 400 and more is an error.
func (s *session) ask(line string) (reply, error) {
	r, err := s.say(line)
	if err == nil && r.code >= 400 {
		err = fmt.Errorf("%s: %w", line, &refused{r})
	}
	return r, err
}

// want sends a command whose reply must have that code and contain the texts.
func (s *session) want(t testing.TB, code int, line string, texts ...string) reply {
	t.Helper()
	r, err := s.say(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if r.code != code {
		t.Fatalf("%s: %v, want %d", line, r, code)
	}
	for _, text := range texts {
		if !strings.Contains(r.text, text) {
			t.Fatalf("%s: %v, want it to contain %q", line, r, text)
		}
	}
	return r
}

// open begins a transfer over a passive data connection (RFC 2428).
func (s *session) open(line string) (net.Conn, error) {
	r, err := s.ask("EPSV")
	if err != nil {
		return nil, err
	}
	var port string
	if _, after, ok := strings.Cut(r.text, "(|||"); ok {
		port, _, _ = strings.Cut(after, "|")
	}
	host, _, _ := net.SplitHostPort(s.address)
	data, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), s.haste)
	if err != nil {
		return nil, err
	}
	if _, err := s.ask(line); err != nil {
		data.Close()
		return nil, err
	}
	return data, data.SetDeadline(time.Now().Add(s.haste))
}

// done reads the last reply of a transfer.
func (s *session) done() error {
	r, err := s.read()
	if err == nil && r.code != 226 {
		err = &refused{r}
	}
	return err
}

// store uploads a file. between is called in its middle, unless it is nil.
func (s *session) store(path string, content []byte, between func()) error {
	// With its length announced an upload that is cut off is none.
	if _, err := s.ask(fmt.Sprint("ALLO ", len(content))); err != nil {
		return err
	}
	data, err := s.open("STOR " + path)
	if err != nil {
		return err
	}
	defer data.Close()
	for i, half := range [][]byte{content[:len(content)/2], content[len(content)/2:]} {
		if i == 1 && between != nil {
			between()
		}
		if _, err := data.Write(half); err != nil {
			return err
		}
	}
	data.Close()
	return s.done()
}

// retrieve downloads a file.
func (s *session) retrieve(path string) ([]byte, error) {
	data, err := s.open("RETR " + path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(data)
	data.Close()
	return content, errors.Join(s.done(), err)
}

// token returns the token in a 257.
func token(r reply) uint64 {
	_, after, _ := strings.Cut(r.text, "token ")
	number, _, _ := strings.Cut(after, ",")
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}

// text is a file that holds a value: so many lines of it, so that a part of it shows.
func text(value int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%019d\n", value), 300) }
