package integration

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience is how long a reply, or what a test waits for, may take.
const patience = 40 * time.Second

// session is a control connection that a test speaks line by line. The methods that return an error are for
// any goroutine, the others for the test's own.
type session struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

// reply is a whole reply, the lines of its text joined with "\n".
type reply struct {
	code int
	text string
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.code, r.text) }

// connect opens a control connection and reads the greeting.
func connect(address string) (*session, reply, error) { return connectFrom(nil, address) }

// connectFrom is connect from an address of this machine; nil: the one that the kernel chooses.
func connectFrom(from net.Addr, address string) (*session, reply, error) {
	dialer := net.Dialer{Timeout: patience, LocalAddr: from}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		return nil, reply{}, err
	}
	s := &session{conn: conn, r: bufio.NewReader(conn)}
	greeting, err := s.readReply()
	if err != nil {
		conn.Close()
		return nil, reply{}, err
	}
	return s, greeting, nil
}

// login opens a session for an account.
func login(address, name string) (*session, error) { return loginFrom(nil, address, name) }

func loginFrom(from net.Addr, address, name string) (*session, error) {
	s, _, err := connectFrom(from, address)
	if err != nil {
		return nil, err
	}
	for _, line := range []string{"USER " + name, "PASS " + password} {
		r, err := s.try(line)
		if err == nil && r.code >= 400 {
			err = fmt.Errorf("%s: %v", line, r)
		}
		if err != nil {
			s.conn.Close()
			return nil, err
		}
	}
	return s, nil
}

// session opens a session for an account, which ends with the test.
func (s *server) session(name string) *session {
	s.t.Helper()
	return s.sessionFrom("", name)
}

// sessionFrom is session from an address of this machine; "": the one that the kernel chooses.
func (s *server) sessionFrom(address, name string) *session {
	s.t.Helper()
	var from net.Addr
	if address != "" {
		from = &net.TCPAddr{IP: net.ParseIP(address)}
	}
	c, err := loginFrom(from, s.v4, name)
	if err != nil {
		s.t.Fatal(err)
	}
	c.t = s.t
	s.t.Cleanup(func() { c.conn.Close() })
	return c
}

func (s *session) send(line string) error {
	if err := s.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	_, err := io.WriteString(s.conn, line+"\r\n")
	return err
}

// readReply reads one reply (RFC 959 section 4.2).
func (s *session) readReply() (reply, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return reply{}, err
	}
	var r reply
	for first := true; ; first = false {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return r, err
		}
		line = strings.TrimRight(line, "\r\n")
		if first {
			if len(line) < 4 {
				return r, fmt.Errorf("no reply: %q", line)
			}
			if r.code, err = strconv.Atoi(line[:3]); err != nil {
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

// try sends a command and returns the reply.
func (s *session) try(line string) (reply, error) {
	if err := s.send(line); err != nil {
		return reply{}, err
	}
	return s.readReply()
}

// want sends a command whose reply must have that code, and must contain the texts.
func (s *session) want(code int, line string, texts ...string) reply {
	s.t.Helper()
	r, err := s.try(line)
	if err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	s.check(line, r, code, texts...)
	return r
}

func (s *session) check(line string, r reply, code int, texts ...string) {
	s.t.Helper()
	if r.code != code {
		s.t.Fatalf("%s: %v, want %d", line, r, code)
	}
	for _, text := range texts {
		if !strings.Contains(r.text, text) {
			s.t.Fatalf("%s: %v, want it to contain %q", line, r, text)
		}
	}
}

// wantReply reads a reply that nothing was sent for just now.
func (s *session) wantReply(code int, texts ...string) reply {
	s.t.Helper()
	r, err := s.readReply()
	if err != nil {
		s.t.Fatal(err)
	}
	s.check("(later)", r, code, texts...)
	return r
}

// open sends a command with a passive data connection (RFC 2428) and returns that after the 150.
func (s *session) open(line string) (net.Conn, error) {
	port, err := s.epsv()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(s.conn.RemoteAddr().String())
	data, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port)), patience)
	if err != nil {
		return nil, err
	}
	r, err := s.try(line)
	if err == nil && r.code != 150 {
		err = fmt.Errorf("%s: %w", line, &refused{r})
	}
	if err != nil {
		data.Close()
		return nil, err
	}
	return data, data.SetDeadline(time.Now().Add(patience))
}

// epsv asks for a passive port.
func (s *session) epsv() (port int, err error) {
	r, err := s.try("EPSV")
	if err == nil {
		if _, serr := fmt.Sscanf(r.text[max(0, strings.LastIndex(r.text, "(")):], "(|||%d|)", &port); serr != nil {
			err = fmt.Errorf("EPSV: %w", &refused{r})
		}
	}
	return port, err
}

// refused is an error that is a reply.
type refused struct{ reply reply }

func (e *refused) Error() string { return e.reply.String() }

// done reads the last reply of a transfer.
func (s *session) done() error {
	r, err := s.readReply()
	if err == nil && r.code != 226 {
		err = &refused{r}
	}
	return err
}

// store uploads a file.
func (s *session) store(path string, content []byte) error {
	data, err := s.open("STOR " + path)
	if err != nil {
		return err
	}
	_, werr := data.Write(content)
	if err := data.Close(); werr == nil {
		werr = err
	}
	if err := s.done(); err != nil {
		return err
	}
	return werr
}

// retrieve downloads a file, or with LIST or MLSD a listing.
func (s *session) retrieve(line string) ([]byte, error) {
	data, err := s.open(line)
	if err != nil {
		return nil, err
	}
	content, rerr := io.ReadAll(data)
	data.Close()
	if err := s.done(); err != nil {
		return nil, err
	}
	return content, rerr
}

// token returns the token in a 257.
func token(r reply) uint64 {
	_, after, _ := strings.Cut(r.text, "token ")
	number, _, _ := strings.Cut(after, ",")
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}

// breaks has an administrator take the lock away from its holder.
func (s *session) breaks(name string) {
	s.t.Helper()
	refused := s.want(550, "SITE LOCK BREAK "+name, "token ")
	_, after, _ := strings.Cut(refused.text, "token ")
	number, _, _ := strings.Cut(after, ":")
	s.want(200, "SITE LOCK BREAK "+number+" "+name, "broken")
}

// startTLS upgrades the connection as AUTH TLS has it, and returns what the server showed.
func (s *session) startTLS() tls.ConnectionState {
	s.t.Helper()
	s.want(234, "AUTH TLS")
	conn := tls.Client(s.conn, &tls.Config{InsecureSkipVerify: true})
	if err := conn.Handshake(); err != nil {
		s.t.Fatal(err)
	}
	s.conn, s.r = conn, bufio.NewReader(conn)
	return conn.ConnectionState()
}
