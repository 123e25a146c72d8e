package integration

import (
	"crypto/tls"
	"net"

	"github.com/ftplockd/ftplockd/integration/harness"
)

// session is a control connection on which a test sends single lines.
type session struct{ *harness.Session }

// connect opens a control connection and reads the greeting.
func connect(address string) (*session, harness.Reply, error) { return connectFrom(nil, address) }

// connectFrom is connect from an address of this machine; nil: the kernel chooses one.
func connectFrom(from net.Addr, address string) (*session, harness.Reply, error) {
	s, greeting, err := harness.Connect(from, address, 0)
	return &session{s}, greeting, err
}

// stranger opens a control connection without a login. It ends with the test.
func (s *server) stranger() *session {
	s.t.Helper()
	c, greeting, err := connect(s.v4)
	if err != nil || greeting.Code != 220 {
		s.t.Fatal(greeting, err)
	}
	return c.of(s)
}

// of makes a session end with the test of the server.
func (c *session) of(s *server) *session {
	c.T = s.t
	s.t.Cleanup(func() { c.Conn.Close() })
	return c
}

// login opens a session for an account.
func login(address, name string) (*session, error) { return loginFrom(nil, address, name) }

func loginFrom(from net.Addr, address, name string) (*session, error) {
	s, err := harness.Login(from, address, name, 0)
	return &session{s}, err
}

// session opens a session for an account, which ends with the test.
func (s *server) session(name string) *session {
	s.t.Helper()
	return s.sessionFrom("", name)
}

// sessionFrom is session from an address of this machine; "": the kernel chooses one.
func (s *server) sessionFrom(address, name string) *session {
	s.t.Helper()
	var addr net.Addr
	if address != "" {
		addr = from(address)
	}
	c, err := loginFrom(addr, s.v4, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return c.of(s)
}

// begin begins a transfer and returns its data connection.
func (s *session) begin(line string) net.Conn {
	s.T.Helper()
	data, err := s.Open(line)
	if err != nil {
		s.T.Fatalf("%s: %v", line, err)
	}
	return data
}

// says sends a command whose reply is read later.
func (s *session) says(line string) {
	s.T.Helper()
	if err := s.Send(line); err != nil {
		s.T.Fatalf("%s: %v", line, err)
	}
}

// stores uploads a file and fails the test if the upload fails.
func (s *session) stores(path, text string) {
	s.T.Helper()
	if err := s.Store(path, []byte(text)); err != nil {
		s.T.Fatalf("STOR %s: %v", path, err)
	}
}

// wantEither sends a command and checks that the reply is a success or 550.
func (s *session) wantEither(line string) harness.Reply {
	s.T.Helper()
	r, err := s.Try(line)
	if err != nil {
		s.T.Fatal(err)
	}
	if r.Code != 550 && r.Code/100 != 2 {
		s.T.Fatalf("%s: %v", line, r)
	}
	return r
}

// startTLS upgrades the connection with AUTH TLS and returns its state.
func (s *session) startTLS() tls.ConnectionState {
	s.T.Helper()
	if err := s.StartTLS(&tls.Config{InsecureSkipVerify: true}); err != nil {
		s.T.Fatal(err)
	}
	return s.Conn.(*tls.Conn).ConnectionState()
}
