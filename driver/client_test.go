package driver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/ftplockd/ftplockd/config"
	"github.com/ftplockd/ftplockd/integration/harness"
)

// conn is a client.
type conn struct {
	*harness.Session
	server *server
}

func (s *server) dial() *conn {
	s.t.Helper()
	session, greeting, err := harness.Connect(nil, s.addr, patience)
	if err != nil || greeting.Code != 220 {
		s.t.Fatal(greeting, err)
	}
	s.t.Cleanup(func() { session.TCP.Close() })
	session.T, session.Passive = s.t, "PASV"
	session.Received = func(line string) {
		if tooLong(line) {
			session.T.Errorf("a reply of %d bytes: %q", len(line), line)
		}
	}
	return &conn{session, s}
}

// tooLong reports whether a refusal of one line, or a 257 with a short path, has more bytes than embedded clients read, with its CRLF.
func tooLong(line string) bool {
	const most = 126
	if len(line) <= most || line[3] != ' ' {
		return false
	}
	return line[0] >= '4' || strings.HasPrefix(line, "257 ") && strings.LastIndexByte(line, '"') < most
}

// as returns a client that has logged in, under TLS if the server requires it.
func (s *server) as(account string) *conn {
	s.t.Helper()
	c := s.dial()
	if s.setup.settings.TLS.Mode == config.TLSRequired {
		c.upgrade()
	}
	c.login(account)
	return c
}

func (c *conn) login(account string) {
	c.T.Helper()
	c.want("USER "+account, "331 *")
	c.want("PASS "+password, "230 *")
}

// upgrade sends AUTH TLS, PBSZ and PROT P (RFC 4217).
func (c *conn) upgrade() {
	c.T.Helper()
	c.upgradeWith(&tls.Config{InsecureSkipVerify: true})
}

func (c *conn) upgradeWith(config *tls.Config) {
	c.T.Helper()
	c.must(c.StartTLS(config))
	c.want("PBSZ 0", "200 *")
	c.want("PROT P", "200 *")
	c.Data = &tls.Config{InsecureSkipVerify: true}
}

// must ends the test if there is an error.
func (c *conn) must(err error) {
	c.T.Helper()
	if err != nil {
		c.T.Fatal(err)
	}
}

func (c *conn) send(lines string) {
	c.T.Helper()
	c.must(c.SendRaw(lines))
}

// reply reads a whole reply (RFC 959 section 4.2).
func (c *conn) reply() string {
	c.T.Helper()
	r, err := c.ReadReply()
	c.must(err)
	return r.String()
}

// ask sends a command and returns its reply.
func (c *conn) ask(command string) string {
	c.T.Helper()
	c.send(command + "\r\n")
	return c.reply()
}

// want sends a command and checks its reply, of one line or the first of several.
func (c *conn) want(command, pattern string) {
	c.T.Helper()
	first, _, _ := strings.Cut(c.ask(command), "\n")
	c.check(command, first, pattern)
}

func (c *conn) check(after, got, pattern string) {
	c.T.Helper()
	if !harness.Fits(pattern, got) {
		c.T.Errorf("%s\n got: %q\nwant: %q", after, got, pattern)
	}
}

// play plays lines of a transcript, see harness.Session.Play.
func (c *conn) play(lines string) {
	c.T.Helper()
	for line := range strings.Lines(lines) {
		if line = strings.Trim(line, "\n\t "); line != "" {
			c.must(c.Play(line))
		}
	}
}

// ended checks that the server has closed the connection.
func (c *conn) ended() {
	c.T.Helper()
	if l, err := c.Line(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.T.Errorf("the connection goes on: %q, %v", l, err)
	}
}

// reset ends the connection with an RST.
func (c *conn) reset() {
	c.T.Helper()
	c.must(errors.Join(c.TCP.SetLinger(0), c.TCP.Close()))
}

// port sends PASV and returns the address for the data connection.
func (c *conn) port() string {
	c.T.Helper()
	r := c.ask("PASV")
	c.check("PASV", r, "227 *(127,0,0,1,#,#)*")
	return fmt.Sprint("127.0.0.1:", harness.Port(r))
}

// data opens a passive data connection, without TLS.
func (c *conn) data() *net.TCPConn {
	c.T.Helper()
	nc, err := c.DialData()
	c.must(err)
	c.T.Cleanup(func() { nc.Close() })
	return nc
}

// opened begins a transfer and returns its data connection, without TLS.
func (c *conn) opened(command string, active bool) *net.TCPConn {
	c.T.Helper()
	if !active {
		nc := c.data()
		c.want(command, "150 *")
		return nc
	}
	l := listen(c.T)
	c.want(l.PORT, "200 *")
	c.want(command, "150 *")
	return l.accept()
}

// begun begins an upload. It ends with the data connection that begun returns.
func (c *conn) begun(command, content string) net.Conn {
	c.T.Helper()
	d := c.Secure(c.opened(command, false))
	_, err := io.WriteString(d, content)
	c.must(err)
	return d
}

// execute sends a command with its transfer, see harness.Session.Execute.
func (c *conn) execute(command, content string) (received, reply string) {
	c.T.Helper()
	r, received, err := c.Execute(command, content)
	c.must(err)
	return received, r.String()
}

// store uploads, and checks that it succeeded.
func (c *conn) store(name, content string) {
	c.T.Helper()
	c.must(c.Store(name, []byte(content)))
}

// fetch downloads, and checks that it succeeded.
func (c *conn) fetch(command string) string {
	c.T.Helper()
	content, err := c.Retrieve(command)
	c.must(err)
	return string(content)
}
