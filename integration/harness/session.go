package harness

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Session is a control connection on which a test sends single lines. The methods that return an error are for any goroutine, the others for the
// goroutine of the test.
type Session struct {
	T        testing.TB // may be nil, where only methods that return an error are called
	Conn     net.Conn
	R        *bufio.Reader
	TCP      *net.TCPConn      // below TLS; nil: another kind of connection
	Haste    time.Duration     // the time limit of a reply; 0: Patience
	Passive  string            // the command that opens a port for data, PASV or EPSV; "": EPSV
	Data     *tls.Config       // of data connections; nil: without TLS
	Received func(line string) // is called with each line of a reply; nil: no call

	begun transfer // by a line of a transcript, see Play
}

// Reply is a whole reply, the lines of its text joined with "\n".
type Reply struct {
	Code int
	Text string
}

// String returns the reply as the server sends it, with "\n" between its lines.
func (r Reply) String() string {
	if strings.Contains(r.Text, "\n") {
		return fmt.Sprintf("%d-%s", r.Code, r.Text)
	}
	return fmt.Sprintf("%d %s", r.Code, r.Text)
}

// Refused is an error that is a reply.
type Refused struct{ Reply Reply }

func (e *Refused) Error() string { return e.Reply.String() }

// NewSession returns the session of a connection whose greeting has not been read.
func NewSession(conn net.Conn, haste time.Duration) *Session {
	tcp, _ := conn.(*net.TCPConn)
	return &Session{Conn: conn, R: bufio.NewReader(conn), TCP: tcp, Haste: haste}
}

// Connect opens a control connection and reads the greeting. from is an address of this machine; nil: the kernel chooses one.
func Connect(from net.Addr, address string, haste time.Duration) (*Session, Reply, error) {
	dialer := net.Dialer{Timeout: cmp.Or(haste, Patience), LocalAddr: from}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		return nil, Reply{}, err
	}
	s := NewSession(conn, haste)
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
func (s *Session) Send(line string) error { return s.SendRaw(line + "\r\n") }

// SendRaw sends bytes.
func (s *Session) SendRaw(text string) error {
	if err := s.Conn.SetDeadline(s.deadline()); err != nil {
		return err
	}
	_, err := io.WriteString(s.Conn, text)
	return err
}

// Line reads one line of a reply.
func (s *Session) Line() (string, error) {
	if err := s.Conn.SetReadDeadline(s.deadline()); err != nil {
		return "", err
	}
	line, err := s.R.ReadString('\n')
	if err != nil {
		return line, err
	}
	line, ok := strings.CutSuffix(line, "\r\n")
	if !ok {
		return line, fmt.Errorf("no CRLF ends %q", line)
	}
	if s.Received != nil {
		s.Received(line)
	}
	return line, nil
}

// ReadReply reads one reply (RFC 959 section 4.2).
func (s *Session) ReadReply() (Reply, error) {
	line, err := s.Line()
	if err != nil {
		return Reply{}, err
	}
	if len(line) < 4 || line[0] < '1' || line[0] > '5' || line[3] != ' ' && line[3] != '-' {
		return Reply{}, fmt.Errorf("no reply: %q", line)
	}
	r := Reply{Text: line[4:]}
	if r.Code, err = strconv.Atoi(line[:3]); err != nil {
		return r, fmt.Errorf("no reply: %q", line)
	}
	for last := line[:3] + " "; !strings.HasPrefix(line, last); r.Text += "\n" + line {
		if line, err = s.Line(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// StartTLS sends AUTH TLS and completes the handshake (RFC 4217).
func (s *Session) StartTLS(config *tls.Config) error {
	if _, err := s.Ask("AUTH TLS"); err != nil {
		return err
	}
	return s.Handshake(tls.Client(s.Conn, config))
}

// Handshake completes the handshake of a TLS connection, and uses it from now on.
func (s *Session) Handshake(conn *tls.Conn) error {
	if err := conn.SetDeadline(s.deadline()); err != nil {
		return err
	}
	s.Conn, s.R = conn, bufio.NewReader(conn)
	return conn.Handshake()
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
func (s *Session) EPSV() (port int, err error) { return s.passive("EPSV") }

func (s *Session) passive(command string) (port int, err error) {
	r, err := s.Try(command)
	if err == nil {
		if port = Port(r.Text); port == 0 {
			err = fmt.Errorf("%s: %w", command, &Refused{r})
		}
	}
	return port, err
}

var passivePort = regexp.MustCompile(`([0-9]+),([0-9]+)\)|([0-9]+)\|\)`)

// Port returns the port in a reply to PASV (RFC 959) or EPSV (RFC 2428); 0 if there is none.
func Port(reply string) int {
	m := passivePort.FindStringSubmatch(reply)
	if m == nil {
		return 0
	}
	high, _ := strconv.Atoi(m[1])
	low, _ := strconv.Atoi(m[2] + m[3])
	return high<<8 | low
}

// DialData opens a passive data connection, without TLS.
func (s *Session) DialData() (*net.TCPConn, error) {
	port, err := s.passive(cmp.Or(s.Passive, "EPSV"))
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(s.Address())
	data, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port)), cmp.Or(s.Haste, Patience))
	if err != nil {
		return nil, err
	}
	return data.(*net.TCPConn), data.SetDeadline(s.deadline())
}

// Secure returns the data connection, under TLS if Data is set.
func (s *Session) Secure(data net.Conn) net.Conn {
	if s.Data == nil {
		return data
	}
	return tls.Client(data, s.Data)
}

// Open sends a command with a passive data connection, and returns the data connection after the 150.
func (s *Session) Open(line string) (net.Conn, error) {
	data, err := s.DialData()
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
	return s.Secure(data), data.SetDeadline(s.deadline())
}

// Done reads the last reply of a transfer.
func (s *Session) Done() error {
	r, err := s.ReadReply()
	if err == nil && r.Code != 226 {
		err = &Refused{r}
	}
	return err
}

var (
	uploads   = map[string]bool{"STOR": true, "APPE": true, "STOU": true}
	downloads = map[string]bool{"RETR": true, "LIST": true, "NLST": true, "MLSD": true}
)

// Execute sends a command with its transfer, and returns the last reply: STOR, APPE and STOU upload the content, and RETR, LIST, NLST and MLSD
// download. A failure of the data connection is an error only if the reply is 226. A verb in lower case has no data connection.
func (s *Session) Execute(line, content string) (r Reply, received string, err error) {
	verb, _, _ := strings.Cut(line, " ")
	if !uploads[verb] && !downloads[verb] {
		r, err = s.Try(line)
		return r, "", err
	}
	data, err := s.Open(line)
	if no, ok := errors.AsType[*Refused](err); ok {
		return no.Reply, "", nil
	} else if err != nil {
		return r, "", err
	}
	var moved error
	if uploads[verb] {
		_, moved = io.WriteString(data, content)
		moved = errors.Join(moved, data.Close())
	} else {
		var all []byte
		all, moved = io.ReadAll(data)
		received = string(all)
		data.Close()
	}
	if r, err = s.ReadReply(); err == nil && r.Code == 226 {
		err = moved
	}
	return r, received, err
}

// Store uploads a file.
func (s *Session) Store(path string, content []byte) error {
	_, err := s.complete("STOR "+path, string(content))
	return err
}

// Retrieve downloads a file, or with LIST or MLSD a listing.
func (s *Session) Retrieve(line string) ([]byte, error) { return s.complete(line, "") }

func (s *Session) complete(line, content string) ([]byte, error) {
	r, received, err := s.Execute(line, content)
	if err == nil && r.Code != 226 {
		err = fmt.Errorf("%s: %w", line, &Refused{r})
	}
	return []byte(received), err
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
