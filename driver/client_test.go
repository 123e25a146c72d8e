package driver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/config"
)

// conn is a client.
type conn struct {
	t      *testing.T
	server *server
	tcp    *net.TCPConn
	net.Conn
	in      *bufio.Reader
	private bool // data connections under TLS
}

func (s *server) dial() *conn {
	s.t.Helper()
	nc, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &conn{t: s.t, server: s, tcp: nc.(*net.TCPConn), Conn: nc, in: bufio.NewReader(nc)}
	s.t.Cleanup(func() { nc.Close() })
	c.transcript("S: 220 *")
	return c
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
	c.t.Helper()
	c.want("USER "+account, "331 *")
	c.want("PASS "+password, "230 *")
}

// upgrade sends AUTH TLS, PBSZ and PROT P (RFC 4217).
func (c *conn) upgrade() {
	c.t.Helper()
	c.upgradeWith(&tls.Config{InsecureSkipVerify: true})
}

func (c *conn) upgradeWith(config *tls.Config) {
	c.t.Helper()
	c.want("AUTH TLS", "234 *")
	c.Conn = tls.Client(c.tcp, config)
	c.in = bufio.NewReader(c.Conn)
	c.transcript(`
		C: PBSZ 0
		S: 200 *
		C: PROT P
		S: 200 *`)
	c.private = true
}

func (c *conn) send(lines string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, lines); err != nil {
		c.t.Fatalf("sending %q: %v", lines, err)
	}
}

// line reads one line.
func (c *conn) line() (string, error) {
	c.SetReadDeadline(time.Now().Add(patience))
	l, err := c.in.ReadString('\n')
	switch {
	case err != nil:
	case !strings.HasSuffix(l, "\r\n"):
		err = errors.New("the line does not end in CRLF")
	case tooLong(l):
		c.t.Errorf("a reply of %d bytes: %q", len(l), l)
	}
	return strings.TrimRight(l, "\r\n"), err
}

// tooLong reports whether a refusal of one line, or a 257 with a short path, has more bytes than embedded clients read.
func tooLong(line string) bool {
	const most = 128
	if len(line) <= most || line[3] != ' ' {
		return false
	}
	return line[0] >= '4' || strings.HasPrefix(line, "257 ") && strings.LastIndexByte(line, '"')+len("\"\r\n") <= most
}

// reply reads a whole reply (RFC 959 section 4.2).
func (c *conn) reply() string {
	c.t.Helper()
	r, err := c.next()
	if err != nil {
		c.t.Fatalf("reading a reply: %q, %v", r, err)
	}
	return r
}

// next reads a whole reply, or returns an error.
func (c *conn) next() (string, error) {
	all, err := c.line()
	if err == nil && (len(all) < 4 || all[0] < '1' || all[0] > '5' || all[3] != ' ' && all[3] != '-') {
		err = errors.New("not a reply")
	}
	for l := all; err == nil && !strings.HasPrefix(l, all[:3]+" "); all += "\n" + l {
		l, err = c.line()
	}
	return all, err
}

// ask sends a command and returns its reply.
func (c *conn) ask(command string) string {
	c.t.Helper()
	c.send(command + "\r\n")
	return c.reply()
}

// want sends a command and checks its reply, of one line or the first of several.
func (c *conn) want(command, pattern string) {
	c.t.Helper()
	first, _, _ := strings.Cut(c.ask(command), "\n")
	c.check(command, first, pattern)
}

// breaks ends a lock as an administrator, with the token of the first reply.
func (c *conn) breaks(path string) {
	c.t.Helper()
	_, after, _ := strings.Cut(c.ask("SITE LOCK BREAK "+path), "token ")
	token, _, _ := strings.Cut(after, " ")
	c.want("SITE LOCK BREAK "+token+" "+path, "200 "+path+" broken")
}

func (c *conn) check(after, got, pattern string) {
	c.t.Helper()
	if !fits(pattern, got) {
		c.t.Errorf("%s\n got: %q\nwant: %q", after, got, pattern)
	}
}

// fits reports whether a line matches a pattern in which * is any text and # a number.
func fits(pattern, line string) bool {
	p := regexp.QuoteMeta(pattern)
	p = strings.NewReplacer(`\*`, `.*`, `#`, `[0-9]+`).Replace(p)
	return regexp.MustCompile(`(?s)^` + p + `$`).MatchString(line)
}

// transcript sends each line after "C: ", and checks that each line after "S: " comes, as a pattern of fits.
func (c *conn) transcript(script string) {
	c.t.Helper()
	last := ""
	for l := range strings.Lines(script) {
		l = strings.TrimLeft(strings.TrimRight(l, "\n"), "\t ")
		switch {
		case strings.HasPrefix(l, "C: "):
			last = l
			c.send(unescaped(l[3:]) + "\r\n")
		case strings.HasPrefix(l, "S: "):
			got, err := c.line()
			if err != nil {
				c.t.Fatalf("%s: %q, %v", last, got, err)
			}
			c.check(last, got, unescaped(l[3:]))
		case l != "":
			c.t.Fatalf("not a line of a transcript: %q", l)
		}
	}
}

// ended checks that the server has closed the connection.
func (c *conn) ended() {
	c.t.Helper()
	if l, err := c.line(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("the connection goes on: %q, %v", l, err)
	}
}

// reset ends the connection with an RST.
func (c *conn) reset() {
	c.t.Helper()
	if err := errors.Join(c.tcp.SetLinger(0), c.tcp.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// port sends PASV and returns the address for the data connection.
func (c *conn) port() string {
	c.t.Helper()
	r := c.ask("PASV")
	c.check("PASV", r, "227 *(127,0,0,1,#,#)*")
	return fmt.Sprintf("127.0.0.1:%d", portIn(r))
}

// portIn reads the port from a reply to PASV (RFC 959) or EPSV (RFC 2428); 0 if there is none.
func portIn(reply string) int {
	m := regexp.MustCompile(`([0-9]+),([0-9]+)\)|([0-9]+)\|\)`).FindStringSubmatch(reply)
	if m == nil {
		return 0
	}
	high, _ := strconv.Atoi(m[1])
	low, _ := strconv.Atoi(m[2] + m[3])
	return high<<8 | low
}

// data opens a passive data connection, without TLS.
func (c *conn) data() *net.TCPConn {
	c.t.Helper()
	nc, err := net.Dial("tcp", c.port())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return nc.(*net.TCPConn)
}

// secured returns the data connection, under TLS after PROT P.
func (c *conn) secured(nc net.Conn) net.Conn {
	if !c.private {
		return nc
	}
	return tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
}

// upload sends content and returns the final reply.
func (c *conn) upload(command, content string) string {
	c.t.Helper()
	nc := c.data()
	first := c.ask(command)
	if !strings.HasPrefix(first, "150 ") {
		return first
	}
	d := c.secured(nc)
	if _, err := io.WriteString(d, content); err != nil {
		c.t.Errorf("sending data: %v", err)
	}
	d.Close()
	return c.reply()
}

// store uploads, and checks that it succeeded.
func (c *conn) store(name, content string) {
	c.t.Helper()
	c.check("STOR "+name, c.upload("STOR "+name, content), "226 *")
}

// download returns the content and the final reply.
func (c *conn) download(command string) (content, reply string) {
	c.t.Helper()
	nc := c.data()
	first := c.ask(command)
	if !strings.HasPrefix(first, "150 ") {
		return "", first
	}
	b, err := io.ReadAll(c.secured(nc))
	if err != nil {
		c.t.Errorf("%s: receiving data: %v", command, err)
	}
	nc.Close()
	return string(b), c.reply()
}

// fetch downloads, and checks that it succeeded.
func (c *conn) fetch(command string) string {
	c.t.Helper()
	content, reply := c.download(command)
	c.check(command, reply, "226 *")
	return content
}
