package harness

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Session is a control connection on which a test sends single lines. The methods that return an error are for any goroutine, the others for the
// goroutine of the test.
type Session struct {
	T     testing.TB // may be nil, where only methods that return an error are called
	Conn  net.Conn
	R     *bufio.Reader
	Haste time.Duration // the time limit of a reply; 0: Patience
}

// Reply is a whole reply, the lines of its text joined with "\n".
type Reply struct {
	Code int
	Text string
}

func (r Reply) String() string { return fmt.Sprintf("%d %s", r.Code, r.Text) }

// Refused is an error that is a reply.
type Refused struct{ Reply Reply }

func (e *Refused) Error() string { return e.Reply.String() }

// Connect opens a control connection and reads the greeting. from is an address of this machine; nil: the kernel chooses one.
func Connect(from net.Addr, address string, haste time.Duration) (*Session, Reply, error) {
	dialer := net.Dialer{Timeout: cmp.Or(haste, Patience), LocalAddr: from}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		return nil, Reply{}, err
	}
	s := &Session{Conn: conn, R: bufio.NewReader(conn), Haste: haste}
	greeting, err := s.ReadReply()
	if err != nil {
		conn.Close()
		return nil, Reply{}, err
	}
	return s, greeting, nil
}

// Login opens a session for an account, whose password is Password.
func Login(from net.Addr, address, name string, haste time.Duration) (*Session, error) {
	s, greeting, err := Connect(from, address, haste)
	if err != nil {
		return nil, err
	}
	if greeting.Code != 220 {
		err = &Refused{greeting}
	}
	for _, line := range []string{"USER " + name, "PASS " + Password} {
		if err == nil {
			_, err = s.Ask(line)
		}
	}
	if err != nil {
		s.Conn.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return s, nil
}

// LoginAny logs in at the first address that accepts the login, as clients with several addresses do, and sets TYPE I.
func LoginAny(addresses []string, name string, haste time.Duration) (s *Session, err error) {
	for _, address := range addresses {
		if s, err = Login(nil, address, name, haste); err == nil {
			if _, err = s.Ask("TYPE I"); err == nil {
				return s, nil
			}
			s.Conn.Close()
		}
	}
	return nil, err
}

// Address returns the address of the server.
func (s *Session) Address() string { return s.Conn.RemoteAddr().String() }

func (s *Session) deadline() time.Time { return time.Now().Add(cmp.Or(s.Haste, Patience)) }

// Send sends a command.
func (s *Session) Send(line string) error {
	if err := s.Conn.SetDeadline(s.deadline()); err != nil {
		return err
	}
	_, err := io.WriteString(s.Conn, line+"\r\n")
	return err
}

// ReadReply reads one reply (RFC 959 section 4.2).
func (s *Session) ReadReply() (Reply, error) {
	if err := s.Conn.SetReadDeadline(s.deadline()); err != nil {
		return Reply{}, err
	}
	var r Reply
	for first := true; ; first = false {
		line, err := s.R.ReadString('\n')
		if err != nil {
			return r, err
		}
		line = strings.TrimRight(line, "\r\n")
		if first {
			if len(line) < 4 {
				return r, fmt.Errorf("no reply: %q", line)
			}
			if r.Code, err = strconv.Atoi(line[:3]); err != nil {
				return r, fmt.Errorf("no reply: %q", line)
			}
			r.Text = line[4:]
			if line[3] == ' ' {
				return r, nil
			}
			continue
		}
		r.Text += "\n" + line
		if strings.HasPrefix(line, strconv.Itoa(r.Code)+" ") {
			return r, nil
		}
	}
}

// Try sends a command and returns the reply.
func (s *Session) Try(line string) (Reply, error) {
	if err := s.Send(line); err != nil {
		return Reply{}, err
	}
	return s.ReadReply()
}

// Ask sends a command that must succeed: a reply of 400 and more is an error.
func (s *Session) Ask(line string) (Reply, error) {
	r, err := s.Try(line)
	if err == nil && r.Code >= 400 {
		err = fmt.Errorf("%s: %w", line, &Refused{r})
	}
	return r, err
}

// Want sends a command whose reply must have that code, and must contain the texts.
func (s *Session) Want(code int, line string, texts ...string) Reply {
	s.T.Helper()
	if err := s.Send(line); err != nil {
		s.T.Fatalf("%s: %v", line, err)
	}
	return s.wantNext(line, code, texts)
}

// WantReply reads the reply to an earlier command.
func (s *Session) WantReply(code int, texts ...string) Reply {
	s.T.Helper()
	return s.wantNext("(later)", code, texts)
}

func (s *Session) wantNext(line string, code int, texts []string) Reply {
	s.T.Helper()
	r, err := s.ReadReply()
	if err != nil {
		s.T.Fatalf("%s: %v", line, err)
	}
	if r.Code != code {
		s.T.Fatalf("%s: %v, want %d", line, r, code)
	}
	for _, text := range texts {
		if !strings.Contains(r.Text, text) {
			s.T.Fatalf("%s: %v, want it to contain %q", line, r, text)
		}
	}
	return r
}

// EPSV opens a passive port (RFC 2428).
func (s *Session) EPSV() (port int, err error) {
	r, err := s.Try("EPSV")
	if err == nil {
		if _, serr := fmt.Sscanf(r.Text[max(0, strings.LastIndex(r.Text, "(")):], "(|||%d|)", &port); serr != nil {
			err = fmt.Errorf("EPSV: %w", &Refused{r})
		}
	}
	return port, err
}

// Open sends a command with a passive data connection, and returns the data connection after the 150.
func (s *Session) Open(line string) (net.Conn, error) {
	port, err := s.EPSV()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(s.Address())
	data, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port)), cmp.Or(s.Haste, Patience))
	if err != nil {
		return nil, err
	}
	r, err := s.Try(line)
	if err == nil && r.Code != 150 {
		err = fmt.Errorf("%s: %w", line, &Refused{r})
	}
	if err != nil {
		data.Close()
		return nil, err
	}
	return data, data.SetDeadline(s.deadline())
}

// Done reads the last reply of a transfer.
func (s *Session) Done() error {
	r, err := s.ReadReply()
	if err == nil && r.Code != 226 {
		err = &Refused{r}
	}
	return err
}

// Store uploads a file.
func (s *Session) Store(path string, content []byte) error {
	data, err := s.Open("STOR " + path)
	if err != nil {
		return err
	}
	_, werr := data.Write(content)
	if err := data.Close(); werr == nil {
		werr = err
	}
	if err := s.Done(); err != nil {
		return err
	}
	return werr
}

// Retrieve downloads a file, or with LIST or MLSD a listing.
func (s *Session) Retrieve(line string) ([]byte, error) {
	data, err := s.Open(line)
	if err != nil {
		return nil, err
	}
	content, rerr := io.ReadAll(data)
	data.Close()
	if err := s.Done(); err != nil {
		return nil, err
	}
	return content, rerr
}

// Token returns the token in a 257.
func Token(r Reply) uint64 {
	_, after, _ := strings.Cut(r.Text, "token ")
	number, _, _ := strings.Cut(after, ",")
	n, _ := strconv.ParseUint(number, 10, 64)
	return n
}

// Breaks breaks a lock as an administrator.
func (s *Session) Breaks(name string) {
	s.T.Helper()
	s.Want(200, breaking(name, s.Want(550, "SITE LOCK BREAK "+name, "token ")), "broken")
}

// breaking returns the command that breaks the hold that a refusal names; "": no client holds the lock.
func breaking(name string, refusal Reply) string {
	_, after, ok := strings.Cut(refusal.Text, "token ")
	if !ok {
		return ""
	}
	number, _, _ := strings.Cut(after, " ")
	return "SITE LOCK BREAK " + number + " " + name
}
